"""The tuned kernels on torch tensors: `from gemmtune.torch import gemm`. Needs the extra `torch`.

A call looks the best config for its problem up once, builds and loads it once, and launches it on the current stream
from then on. Where no kernel of ours is known, torch computes, and one log line says why.
"""

try:
    import torch as _torch  # noqa: F401  (whether it is there)
except ImportError as error:
    raise ImportError("gemmtune.torch needs PyTorch: install gemmtune[torch]") from error

from gemmtune.torch.op import gemm
from gemmtune.torch.operands import Refused
from gemmtune.torch.sources import configure

__all__ = ["Refused", "configure", "gemm"]
