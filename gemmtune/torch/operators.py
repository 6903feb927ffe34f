"""Operators: how torch computes a call that no kernel takes, with no copy and no upcast that it can do without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import torch
from torch import Tensor

from gemmtune.torch import streams
from gemmtune.torch.composed import composed, finished, rounds_once, scaled, summed, uncast
from gemmtune.torch.operands import INPUTS, OUTPUTS
from space.kinds.gemm import Gemm

#: Computes C from a, b, bias, source, alpha and beta, into the next argument if it is a tensor; scales may follow.
Compute: TypeAlias = Callable[..., Tensor]
#: Multiplies a by b, into the third argument if it is a tensor; scales may follow.
Product: TypeAlias = Callable[..., Tensor]

#: Dtypes by our names.
DTYPES: Final = {name: dtype for dtype, name in (INPUTS | OUTPUTS).items()} | {"tf32": torch.float32}
#: Parts of epilogues that torch's operators have beside the product.
_SUMMED: Final = ({"alpha"}, {"bias"}, {"beta"}, {"alpha", "bias"}, {"alpha", "beta"})
#: GPUs from this capability on multiply 8-bit floats.
_SCALED_CAPABILITY: Final = (8, 9)
#: torch scales rows and columns on GPUs of this one.
_ROWWISE_CAPABILITY: Final = (9, 0)
#: `_scaled_mm` writes these without a scale of the result.
_SCALED_OUTPUTS: Final = (torch.bfloat16, torch.float16, torch.float32)
#: Of addresses, rows' lengths and columns' number, which cuBLASLt needs for 8-bit operands.
_MULTIPLE: Final = 16


def operator_of(
    problem: Gemm, shape: Sequence[int], dtype: torch.dtype, activation: str, device: torch.device
) -> Compute:
    """How torch computes a problem on a device, without gradients.

    Args:
        shape, dtype: of C.
    """
    plain, rescaled = not problem.epilogue_parts, _rescales(problem, dtype, device)
    product, made = _product_of(problem, tuple(shape), dtype if plain or rescaled else torch.float32, device)
    if product is None:
        return _composing(activation, dtype)
    if (plain or rescaled) and made is dtype:
        return _alone(product, device.type)
    if made is DTYPES[problem.dtype_a]:
        at_once = problem.epilogue_parts in _SUMMED and made is dtype
        return _sum if at_once else _composing(activation, dtype)
    wide = torch.float64 if made is torch.int32 else torch.float32

    def compute(
        a: Tensor, b: Tensor, bias: Tensor | None, source: Tensor | None, alpha: float, beta: float,
        out: Tensor | None, scales: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:  # fmt: skip
        with uncast(a.device):
            x = scaled(product(a, b, None).to(wide), scales)
            x = finished(x, bias, source, alpha, beta, activation, dtype)
        return x if out is None else out.copy_(x)

    return compute


def _alone(product: Product, kind: str) -> Compute:
    casts = torch.amp.is_autocast_available(kind)

    def compute(
        a: Tensor, b: Tensor, bias: Tensor | None, source: Tensor | None, alpha: float, beta: float,
        out: Tensor | None, scales: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:  # fmt: skip
        # Only `_scaled_mm` is given scales.
        given = (a, b, out) if scales is None else (a, b, out, scales)
        # Entering a context costs microseconds, and this is all that torch's own call would do.
        if casts and torch.is_autocast_enabled(kind):
            with uncast(a.device):
                return product(*given)
        return product(*given)

    return compute


def _sum(
    a: Tensor, b: Tensor, bias: Tensor | None, source: Tensor | None, alpha: float, beta: float,
    out: Tensor | None, scales: tuple[Tensor, Tensor] | None = None,
) -> Tensor:  # fmt: skip
    """`torch.addmm` or `baddbmm`, which scales and adds before it rounds."""
    with uncast(a.device):
        return summed(a, b, bias, source, alpha, beta, out)


def _composing(activation: str, dtype: torch.dtype) -> Compute:
    def compute(
        a: Tensor, b: Tensor, bias: Tensor | None, source: Tensor | None, alpha: float, beta: float,
        out: Tensor | None, scales: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:  # fmt: skip
        made = composed(a, b, bias, source, alpha, beta, activation, dtype, scales)
        return made if out is None else out.copy_(made)

    return compute


def _product_of(
    problem: Gemm, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> tuple[Product | None, torch.dtype]:
    """The operator that multiplies, and the dtype that it writes; None if torch has none for such operands.

    Args:
        dtype: wanted, if the operator can write it.
    """
    a, b = DTYPES[problem.dtype_a], DTYPES[problem.dtype_b]
    if a is b and a.is_floating_point and a.itemsize > 1:
        # torch rounds products to the dtype of the operands: a C that holds more must be composed.
        return (_multiplied(shape) if rounds_once(a, b, DTYPES[problem.dtype_c]) else None), a
    if _scales(problem, device):
        made = dtype if dtype in _SCALED_OUTPUTS else torch.float32
        ready = problem.layout == "nt" and problem.n % _MULTIPLE == problem.k % _MULTIPLE == 0
        return _Scaled(shape, problem.k, made, problem.numerics == "fast", ready, streams.one(device)), made
    if _counts(problem, device):
        return _Counted(shape, problem.k), torch.int32
    return None, dtype


def _scales(problem: Gemm, device: torch.device) -> bool:
    """Whether `torch._scaled_mm` multiplies such operands: 8-bit floats, not both e5m2."""
    dtypes = {problem.dtype_a, problem.dtype_b}
    return (
        device.type == "cuda"
        and dtypes <= {"fp8_e4m3", "fp8_e5m2"}
        and dtypes != {"fp8_e5m2"}
        and torch.cuda.get_device_capability(device) >= _SCALED_CAPABILITY
    )


def _rescales(problem: Gemm, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether `torch._scaled_mm` takes the scales too: one for each operand, or one for each row and column on Hopper,
    for a C in bf16."""
    if problem.epilogue_parts == {"scaled"}:
        return dtype in _SCALED_OUTPUTS and _scales(problem, device)
    return (
        problem.epilogue_parts == {"scaled_rowwise"}
        and dtype is torch.bfloat16
        and problem.n % _MULTIPLE == 0
        and _scales(problem, device)
        and torch.cuda.get_device_capability(device) == _ROWWISE_CAPABILITY
    )


def _counts(problem: Gemm, device: torch.device) -> bool:
    """Whether `torch._int_mm` takes the operands."""
    return (
        device.type == "cuda"
        and {problem.dtype_a, problem.dtype_b} == {"int8"}
        and problem.batch == 1
        and problem.layout[0] == "n"
        and problem.m > 16
        and problem.n % 8 == problem.k % 8 == 0
    )


def _multiplied(shape: tuple[int, ...]) -> Product:
    """`torch.matmul`, which has a slower path for `out` unless both operands are matrices."""

    def rows(a: Tensor, b: Tensor, out: Tensor | None) -> Tensor:
        if b.dim() == 3:
            return torch.bmm(a, b, out=out)
        flat = a.view(-1, a.shape[-1])
        made = torch.mm(flat, b, out=None if out is None else out.view(-1, shape[-1]))
        return made.view(shape) if out is None else out

    return rows if len(shape) > 2 else _matmul


def _matmul(a: Tensor, b: Tensor, out: Tensor | None) -> Tensor:
    return torch.matmul(a, b, out=out)


@dataclass(frozen=True)
class _Scaled:
    """`torch._scaled_mm`, with unit scales unless some are given.

    Attributes:
        ready: whether it takes the operands where they lie, at addresses that are multiples of 16.
        one: 1.0 on the device.
    """

    shape: tuple[int, ...]
    k: int
    dtype: torch.dtype
    fast: bool
    ready: bool
    one: Tensor

    def __call__(
        self, a: Tensor, b: Tensor, out: Tensor | None, scales: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        if b.dim() == 3:
            made = a.new_empty(self.shape, dtype=self.dtype) if out is None else out
            for of_batch in zip(a, b, made, strict=True):
                self._of_matrices(*of_batch, scales)
            return made
        flat = None if out is None else out.view(-1, self.shape[-1])
        made = self._of_matrices(_matrix(a, self.k), b, flat, scales)
        return made.view(self.shape) if out is None else out

    def _of_matrices(
        self, a: Tensor, b: Tensor, out: Tensor | None, scales: tuple[Tensor, Tensor] | None
    ) -> Tensor:
        first, second = _as_taken(*scales) if scales else (self.one, self.one)
        left, right = a, b
        if not (self.ready and _aligned(a) and _aligned(b)):
            left, right = _dense(a, a.shape[0]), _dense(b.t(), _up(b.shape[1])).t()
        whole = right.shape[1] == b.shape[1]
        into = out if whole and _aligned(out) else None
        made = torch._scaled_mm(
            left, right, first, second, out_dtype=self.dtype, use_fast_accum=self.fast, out=into
        )
        if out is not None:
            return out if into is not None else out.copy_(made[:, : b.shape[1]])
        return made if whole else made[:, : b.shape[1]].contiguous()


@dataclass(frozen=True)
class _Counted:
    """`torch._int_mm`."""

    shape: tuple[int, ...]
    k: int

    def __call__(self, a: Tensor, b: Tensor, out: Tensor | None) -> Tensor:
        if not (_aligned(a) and _aligned(b) and _aligned(out)):
            made = torch.matmul(a.double(), b.double())
            return made.to(torch.int32) if out is None else out.copy_(made)
        flat = None if out is None else out.view(-1, self.shape[-1])
        made = torch._int_mm(_matrix(a, self.k), _alone_in(b), out=flat)
        return made.view(self.shape) if out is None else out


def _as_taken(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Scales as `_scaled_mm` takes them: one number each, or [M, 1] and [1, N]."""
    if first.numel() == second.numel() == 1:
        return first.reshape(()), second.reshape(())
    return first.reshape(-1, 1), second.reshape(1, -1)


def _alone_in(b: Tensor) -> Tensor:
    """B as a matrix: of a batch, its only one."""
    return b if b.dim() == 2 else b[0]


def _matrix(a: Tensor, k: int) -> Tensor:
    """Rows as one matrix, whose strides say so even where there is one row."""
    if a.numel() == k and a.stride(-1) == 1:
        return a.as_strided((1, k), (k, 1))
    return a if a.dim() == 2 else a.view(-1, k)


def _dense(x: Tensor, rows: int) -> Tensor:
    """8-bit rows as `_scaled_mm` reads them: at multiples of 16 bytes, and multiples of 16 long; a copy if they aren't.

    Args:
        rows: how many, with rows of zeros behind those of `x`.
    """
    height, width = x.shape
    apart = x.stride(0) % _MULTIPLE == 0 and x.stride(0) >= width
    if (rows, _up(width)) == (height, width) and _aligned(x) and x.stride(1) == 1 and apart:
        return x
    # Bytes, for not every operation knows 8-bit floats.
    copy = torch.zeros(rows, _up(width), dtype=torch.uint8, device=x.device)
    copy[:height, :width] = x.view(torch.uint8)
    return copy.view(x.dtype)


def _up(extent: int) -> int:
    return -(-extent // _MULTIPLE) * _MULTIPLE


def _aligned(x: Tensor | None) -> bool:
    return x is None or not x.data_ptr() % _MULTIPLE
