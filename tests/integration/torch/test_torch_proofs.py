"""What nobody measured is verified before it runs: right results pass, every kind of wrong ones does not. On the CPU.

`make test-torch` runs it with the CPU build of PyTorch; a GPU runs `tests/gpu/test_torch.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

from gemmtune.torch import proofs  # noqa: E402
from gemmtune.torch.composed import composed  # noqa: E402
from gemmtune.torch.operators import DTYPES  # noqa: E402
from space.family import family_named  # noqa: E402
from space.kinds.gemm import Gemm  # noqa: E402
from workers.cuda.copies import Strides  # noqa: E402

CPU = torch.device("cpu")
CONFIG = family_named("sm90_wgmma").config({})
Tensor = torch.Tensor
Spoil = Callable[[Tensor], object]


def right(problem: Gemm, spoil: Spoil = lambda c: None) -> proofs.Launch:
    """A launch that computes C with torch, rounding once, and then spoils it."""
    activation = next((part for part in ("relu", "gelu", "silu") if part in problem.epilogue_parts), "none")

    def launch(
        a: Tensor, b: Tensor, bias: Tensor | None, source: Tensor | None, alpha: float, beta: float, c: Tensor,
        scales: tuple[Tensor, Tensor] | None = None,
    ) -> None:  # fmt: skip
        if a.is_floating_point():
            a, b = a.float(), b.float()
        if scales is not None:
            a, b = a * scales[0], b * scales[1]
        c.copy_(composed(a, b, bias, source, alpha, beta, activation, DTYPES[problem.dtype_c]))
        spoil(c)

    return launch


PROBLEMS = [
    Gemm.of(65, 48, 100),
    *(Gemm.of(33, 40, 64, layout=layout) for layout in ("nn", "tn", "tt")),
    Gemm.of(16, 24, 32, batch=3),
    *(Gemm.of(32, 48, 128, dtype) for dtype in ("fp16", "tf32", "fp8_e4m3", "fp8_e5m2", "fp8_e4m3_promoted")),
    Gemm.of(32, 48, 64, "int8"),
    Gemm.of(32, 48, 64, "uint8,uint8,s32,s32"),
    Gemm.of(32, 48, 64, "int8,int8,int8,s32"),
    Gemm.of(32, 48, 64, "int8,int8,bf16,s32", epilogue="alpha+bias+relu"),
    Gemm.of(32, 48, 64, "bf16,bf16,f32,f32"),
    Gemm.of(32, 48, 64, "fp8_e4m3,fp8_e4m3,fp8_e4m3,f32", epilogue="alpha"),
    Gemm.of(32, 48, 64, "fp8_e4m3", epilogue="scaled+bias"),
    Gemm.of(32, 48, 64, "fp8_e4m3,fp8_e5m2,f32,f32", epilogue="scaled_rowwise+bias"),
    *(Gemm.of(32, 48, 64, epilogue=f"alpha+beta+bias+{activation}") for activation in ("relu", "gelu", "silu")),
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.key)
def test_right_results_pass_and_one_wrong_element_does_not(problem: Gemm) -> None:
    assert proofs.difference(right(problem), problem, CPU) == ""

    def flip(c: Tensor) -> None:
        c.view(-1)[17:18].copy_(torch.tensor([3 if problem.dtype_c in ("s32", "int8") else 40]))

    assert "C[0, 0, 17] is" in proofs.difference(right(problem, flip), problem, CPU)


@pytest.mark.parametrize("problem", [Gemm.of(33, 40, 64, layout="nt"), Gemm.of(16, 24, 32, "fp16", "tn", 3)], ids=str)
def test_a_kernel_that_reads_between_lines_is_wrong(problem: Gemm) -> None:
    strides = {"a": Strides(96, 96 * 64), "b": Strides(128, 128 * 64)}
    seen: list[tuple[int, ...]] = []

    def launch(a: Tensor, b: Tensor, *rest: Any) -> None:  # noqa: ANN401
        seen.append(max(a.stride()[-2:]))
        right(problem)(a, b, *rest)

    assert proofs.difference(launch, problem, CPU, strides) == ""
    assert seen == [96, 96]

    def dense(a: Tensor, b: Tensor, *rest: Any) -> None:  # noqa: ANN401
        right(problem)(a.as_strided(a.shape, a.contiguous().stride()), b, *rest)

    assert "elements are off" in proofs.difference(dense, problem, CPU, strides)


def test_what_is_not_written_or_is_nan_or_infinite_is_wrong() -> None:
    problem = Gemm.of(32, 48, 64)
    for value in (math.nan, math.inf, 0.0):
        spoiled = right(problem, lambda c, value=value: c[0, 31].fill_(value))  # type: ignore[misc]
        assert "elements are off" in proofs.difference(spoiled, problem, CPU)

    # The last row keeps what was in C before.
    def launch(*given: Any) -> None:  # noqa: ANN401
        before = given[-1].clone()
        right(problem)(*given)
        given[-1][0, 31] = before[0, 31]

    assert "48 of 1,536 elements are off, C[0, 31, 0]" in proofs.difference(launch, problem, CPU)


def test_right_once_and_wrong_then_is_wrong() -> None:
    problem, calls = Gemm.of(32, 48, 64), []

    def spoil(c: Tensor) -> None:
        calls.append(c)
        if len(calls) == 2:
            c[0, 5, 5] += 10

    assert "1 of 1,536 elements are off, C[0, 5, 5]" in proofs.difference(right(problem, spoil), problem, CPU)


def test_a_slice_of_k_that_is_left_out_is_wrong() -> None:
    problem = Gemm.of(32, 48, 4096)

    def launch(a: Tensor, b: Tensor, *rest: Any) -> None:  # noqa: ANN401
        rest[-1].copy_(a[..., :4064] @ b[:, :4064])

    assert "elements are off" in proofs.difference(launch, problem, CPU)


@pytest.mark.parametrize("beyond", [-1, 32 * 48])
def test_a_byte_written_beyond_c_is_wrong(beyond: int) -> None:
    problem = Gemm.of(32, 48, 64)

    def spoil(c: Tensor) -> None:
        around = c.as_strided((1,), (1,), c.storage_offset() + beyond)
        around.fill_(1.0)

    assert proofs.difference(right(problem, spoil), problem, CPU) == "it writes beyond C"


def test_large_products_are_compared_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    from gemmtune.torch import expected

    monkeypatch.setattr(expected, "_SIDES", (8, 16))
    problem = Gemm.of(50, 37, 64, batch=2, epilogue="beta+bias")
    assert proofs.difference(right(problem), problem, CPU) == ""

    def spoil(c: Tensor) -> None:
        c[1, 49, 36] = 100

    assert "C[1, 49, 36] is 100" in proofs.difference(right(problem, spoil), problem, CPU)
