"""Tables whose kernels are stand-ins, which note what a GPU would compute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

from gemmtune.torch import install, installed, kernels  # noqa: E402
from gemmtune.torch.operands import Refused  # noqa: E402
from space.kinds.gemm import Gemm  # noqa: E402
from tests.unit.tuner.tables.test_exporters import entry, table  # noqa: E402
from tuner.tables.entries import canonical  # noqa: E402
from workers.cuda.copies import Strides  # noqa: E402

Tensor = torch.Tensor
BF16, E4M3 = torch.bfloat16, torch.float8_e4m3fn
LISTED = (Gemm.of(16, 32, 64), Gemm.of(16, 32, 64, epilogue="bias"), Gemm.of(16, 32, 64, batch=3),
          Gemm.of(16, 32, 64, epilogue="beta"))  # fmt: skip
#: Fast sums, and true ones; a kernel of ours can't read scales on the device.
SCALED = Gemm.of(16, 32, 64, "fp8_e4m3", epilogue="alpha")
SCALED_WITH_BIAS = Gemm.of(16, 32, 64, "fp8_e4m3_promoted", epilogue="alpha+bias")
SCALED_OURS = Gemm.of(16, 48, 64, "fp8_e4m3", epilogue="alpha")
#: Kernels of ours read these.
TENSORWISE = Gemm.of(16, 64, 64, "fp8_e4m3", epilogue="scaled")
ROWWISE = Gemm.of(16, 32, 64, "fp8_e4m3", epilogue="scaled_rowwise")
ROWWISE_WITH_BIAS = Gemm.of(16, 64, 64, "fp8_e4m3_promoted", epilogue="scaled_rowwise+bias")


class StandIn(kernels.Kernel):
    """Computes in f32, on the CPU, and notes what it was given."""

    noted: list[Gemm] = []  # noqa: RUF012
    misaligned = False
    strides: Mapping[str, Strides] = {}
    zeroed: dict[str, int] = {}  # noqa: RUF012

    def __init__(self, problem: Gemm) -> None:
        self.problem = problem

    def launch(
        self, a: Tensor, b: Tensor, bias: Tensor | None, source: Tensor | None, alpha: float, beta: float,
        out: Tensor | None = None, scales: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:  # fmt: skip
        if self.misaligned:
            raise Refused("a starts at an odd address")
        self.noted.append(self.problem)
        made = torch.einsum("...mk,...kn->...mn", a.float(), b.float()) * alpha
        if scales is not None:
            made = made * scales[0] * scales[1]
        made = made + (0 if bias is None else bias.float()) + (0 if source is None else beta * source.float())
        dtype = BF16 if a.dtype is E4M3 else a.dtype
        return made.to(dtype) if out is None else out.copy_(made)

    def writes(self, out: Any) -> bool:  # noqa: ANN401
        return bool(out.is_contiguous() and out.dtype == BF16 and out.shape[-2:] == (16, 32))


@contextmanager
def stand_ins(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[installed.Installed]:
    """A table of all of them, and of a product that gains nothing, installed for the CPU."""
    monkeypatch.setattr(installed, "Kernel", StandIn)
    monkeypatch.setattr(kernels, "prepare", lambda key, problem, *_, **__: StandIn(problem))
    monkeypatch.setattr(StandIn, "noted", [])
    scaled = (entry(SCALED, family="cublaslt"), entry(SCALED_WITH_BIAS, family="cublaslt"), entry(SCALED_OURS),
              entry(TENSORWISE), entry(ROWWISE, family="cublaslt"), entry(ROWWISE_WITH_BIAS))  # fmt: skip
    listed = table(*map(entry, LISTED), *scaled, entry(Gemm.of(8, 8, 8), 1.0))
    (folder / "table.json").write_bytes(canonical(listed))
    found = install(folder / "table.json", eager=True, eager_us=0.0, key="CPU")
    yield found
    found.remove()


def operands(*shape: int) -> Any:  # noqa: ANN401
    *batch, m, n, k = shape
    return torch.randn(*batch, m, k).to(BF16), torch.randn(*batch, n, k).to(BF16).mT
