"""Operators: how torch computes a call that no kernel takes, with no copy and no upcast that it can do without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import torch
from torch import Tensor

from gemmtune.torch import streams
from gemmtune.torch.composed import composed, finished, scaled, uncast
from gemmtune.torch.operands import INPUTS, OUTPUTS
from space.kinds.gemm import Gemm

#: Computes C from a, b, bias, source, alpha and beta, into the next argument if it is a tensor; scales may follow.
Compute: TypeAlias = Callable[..., Tensor]
#: Multiplies a by b, into the last argument if it is a tensor.
Product: TypeAlias = Callable[[Tensor, Tensor, Tensor | None], Tensor]

#: Dtypes by our names.
DTYPES: Final = {name: dtype for dtype, name in (INPUTS | OUTPUTS).items()} | {"tf32": torch.float32}
#: GPUs from this capability on multiply 8-bit floats.
_SCALED_CAPABILITY: Final = (8, 9)
#: `_scaled_mm` writes these without a scale of the result.
_SCALED_OUTPUTS: Final = (torch.bfloat16, torch.float16, torch.float32)
#: Alignment of addresses that cuBLASLt needs for 8-bit operands.
_ALIGN_BYTES: Final = 16


def operator_of(
    problem: Gemm, shape: Sequence[int], dtype: torch.dtype, activation: str, device: torch.device
) -> Compute:
    """How torch computes a problem on a device, without gradients.

    Args:
        shape, dtype: of C.
    """
    plain = not problem.epilogue_parts
    product, made = _product_of(problem, tuple(shape), dtype if plain else torch.float32, device)
    if product is None:
        return _composing(activation, dtype)
    if plain and made is dtype:
        return _alone(product, device.type)
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
        # Entering a context costs microseconds, and this is all that torch's own call would do.
        if casts and torch.is_autocast_enabled(kind):
            with uncast(a.device):
                return product(a, b, out)
        return product(a, b, out)

    return compute


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
        # torch rounds products to the dtype of the operands: an f32 C of 16-bit operands must be composed.
        return (None if problem.dtype_c == "f32" and a is not torch.float32 else _multiplied(shape)), a
    if _scales(problem, device):
        made = dtype if dtype in _SCALED_OUTPUTS else torch.float32
        return _Scaled(shape, problem.k, made, problem.numerics == "fast", streams.one(device)), made
    if _counts(problem, device):
        return _Counted(shape, problem.k), torch.int32
    return None, dtype


def _scales(problem: Gemm, device: torch.device) -> bool:
    """Whether `torch._scaled_mm` takes the operands: row-major by column-major, not both e5m2."""
    dtypes = {problem.dtype_a, problem.dtype_b}
    return (
        device.type == "cuda"
        and dtypes <= {"fp8_e4m3", "fp8_e5m2"}
        and dtypes != {"fp8_e5m2"}
        and (problem.batch, problem.layout) == (1, "nt")
        and problem.n % 16 == problem.k % 16 == 0
        and torch.cuda.get_device_capability(device) >= _SCALED_CAPABILITY
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
    """`torch._scaled_mm` with unit scales.

    Attributes:
        one: 1.0 on the device.
    """

    shape: tuple[int, ...]
    k: int
    dtype: torch.dtype
    fast: bool
    one: Tensor

    def __call__(self, a: Tensor, b: Tensor, out: Tensor | None) -> Tensor:
        if not _aligned(a, b, out):
            made = torch.matmul(a.float(), b.float())
            return made.to(self.dtype) if out is None else out.copy_(made)
        flat = None if out is None else out.view(-1, self.shape[-1])
        made = torch._scaled_mm(
            _matrix(a, self.k), b, self.one, self.one, out_dtype=self.dtype, use_fast_accum=self.fast, out=flat
        )
        return made.view(self.shape) if out is None else out


@dataclass(frozen=True)
class _Counted:
    """`torch._int_mm`."""

    shape: tuple[int, ...]
    k: int

    def __call__(self, a: Tensor, b: Tensor, out: Tensor | None) -> Tensor:
        if not _aligned(a, b, out):
            made = torch.matmul(a.double(), b.double())
            return made.to(torch.int32) if out is None else out.copy_(made)
        flat = None if out is None else out.view(-1, self.shape[-1])
        made = torch._int_mm(_matrix(a, self.k), b, out=flat)
        return made.view(self.shape) if out is None else out


def _matrix(a: Tensor, k: int) -> Tensor:
    """Rows as one matrix, whose strides say so even where there is one row."""
    if a.numel() == k:
        return a.as_strided((1, k), (k, 1))
    return a if a.dim() == 2 else a.view(-1, k)


def _aligned(a: Tensor, b: Tensor, out: Tensor | None) -> bool:
    return not (a.data_ptr() | b.data_ptr() | (0 if out is None else out.data_ptr())) % _ALIGN_BYTES
