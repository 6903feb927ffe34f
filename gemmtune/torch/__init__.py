"""The tuned kernels on torch tensors: `from gemmtune.torch import gemm`. Needs the extra `torch`.

The first call of a kind looks up the best config, builds it and loads it; later calls only launch it on the current
stream. If gemmtune has no kernel for a call, torch computes it, and one log line says why.
"""

try:
    import torch as _torch  # noqa: F401  (only tests that it is installed)
except ImportError as error:
    raise ImportError("gemmtune.torch needs PyTorch: pip install 'gemmtune[torch]'") from error

from gemmtune.hidden import imports as _imports

with _imports():
    from gemmtune.torch.installed import Installed, install
    from gemmtune.torch.op import gemm
    from gemmtune.torch.operands import Refused
    from gemmtune.torch.recording import Recording, record
    from gemmtune.torch.sources import configure

__all__ = ["Installed", "Recording", "Refused", "configure", "gemm", "install", "record"]
