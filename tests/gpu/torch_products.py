"""Products of torch tensors on a card: operands, what is right, what ran, and answers that name a config."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

from gemmtune.torch import kernels  # noqa: E402
from gemmtune.torch.sources import Found  # noqa: E402
from space.config import Config  # noqa: E402
from space.kinds.gemm import Gemm  # noqa: E402

BF16, E4M3, INT8 = torch.bfloat16, torch.float8_e4m3fn, torch.int8


def random(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    made = torch.randn(*shape, device="cuda", generator=torch.Generator("cuda").manual_seed(sum(shape)))
    return (made * 40).clamp(-127, 127).to(dtype) if dtype is torch.int8 else made.to(dtype)


def right(made: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.allclose(made.double(), a.double() @ b.double(), rtol=0.02, atol=0.02 * a.shape[-1] ** 0.5)


def launched() -> list[kernels.Kernel]:
    return [one for one in kernels.everything() if isinstance(one, kernels.Kernel)]


@dataclass
class Exactly:
    """Answers with one config, as measured with one version of cuBLASLt."""

    config: Config | None
    source: str = "measured"
    cublaslt: str = ""

    def find(self, problem: Gemm, device: str) -> Found:
        return Found(self.config, "planted", self.source, self.cublaslt)


def listed(problem: Gemm) -> tuple[Any, list[Config]]:
    """The product as cuBLASLt knows it here, and its algorithms."""
    from workers.cuda.families.cublaslt import Matmul, opened

    torch.zeros((), device="cuda")
    library, missing = opened(0)
    assert library is not None, missing
    matmul = Matmul(library, problem)
    return matmul, list(matmul.listed)
