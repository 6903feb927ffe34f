"""The same product and epilogue, composed of torch's differentiable operators."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from gemmtune.torch.operands import EIGHT_BIT_FLOATS, EIGHT_BIT_INTEGERS

#: Of each activation.
FUNCTION_OF: Final = {"relu": functional.relu, "gelu": functional.gelu, "silu": functional.silu}
#: Devices of operands, whose types torch may change.
_CASTING: Final = ("cuda", "cpu")


def composed(
    a: Tensor, b: Tensor, bias: Tensor | None, source: Tensor | None, alpha: float, beta: float, activation: str,
    dtype: torch.dtype, scales: tuple[Tensor, Tensor] | None = None,
) -> Tensor:  # fmt: skip
    """act(alpha · A·B + beta · source + bias) in `dtype`, differentiable if torch's operators are.

    Args:
        scales: of A and B, which multiply A·B too.
    """
    added = bias if source is None else source
    with uncast(a.device):
        # A factor that is a tensor has a gradient of its own.
        if scales is not None or not rounds_once(a.dtype, b.dtype, dtype) or isinstance(alpha, Tensor):
            x = scaled(_product(a, b), scales)
            return finished(x, bias, source, alpha, beta, activation, dtype)
        if added is not None and (added.dtype != a.dtype or isinstance(beta, Tensor)):
            return finished(summed(a, b, None, None, alpha, 0.0).float(), bias, source, 1.0, beta, activation, dtype)
        x = summed(a, b, bias, source, alpha, beta)
        left = None if source is None else bias
        if left is None and activation == "none" and dtype == a.dtype:
            return x
        return finished(x.float(), left, None, 1.0, 0.0, activation, dtype)


def rounds_once(a: torch.dtype, b: torch.dtype, c: torch.dtype) -> bool:
    """Whether torch's operators for operands of one dtype, which round to it, lose nothing that C can hold."""
    return bool(a == b and a.is_floating_point and a.itemsize > 1 and (a in (c, torch.float32) or c.itemsize == 1))


def summed(
    a: Tensor, b: Tensor, bias: Tensor | None, source: Tensor | None, alpha: float, beta: float,
    out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """alpha · A·B + beta · source, or + bias without a source, by one operator: f16 has no room for A·B alone at times.

    Args:
        bias, source: [N] and [..., M, N] of A's dtype.
        out: of C's shape, contiguous, of A's dtype.
    """
    added, factor = (bias, 1.0) if source is None else (source, beta)
    if added is None and alpha == 1.0:
        return torch.matmul(a, b, out=out)
    if added is None:
        # What 0 multiplies is not read.
        added, factor = a.new_empty(()), 0.0
    if b.dim() == 3 and b.shape[0] != 1:
        return torch.baddbmm(added, a, b, beta=factor, alpha=alpha, out=out)
    n = b.shape[-1]
    added = added if added.dim() < 2 else added.flatten(0, -2)
    right = b if b.dim() == 2 else b[0]
    flat = None if out is None else out.view(-1, n)
    made = torch.addmm(added, a.flatten(0, -2), right, beta=factor, alpha=alpha, out=flat)
    return made.view(*a.shape[:-1], n) if out is None else out


def uncast(device: torch.device) -> AbstractContextManager[None]:
    """No autocast inside: it would round f32 operands, and C would have its dtype, where a kernel's has not."""
    # `is_autocast_available` says this of all devices, but torch.compile can't trace it before 2.13.
    if device.type in _CASTING and torch.is_autocast_enabled(device.type):
        disabled: AbstractContextManager[None] = torch.autocast(device.type, enabled=False)
        return disabled
    return nullcontext()


def scaled(x: Tensor, scales: tuple[Tensor, Tensor] | None) -> Tensor:
    """A product [..., M, N] times one scale for each operand, or M and N of them for its rows and columns."""
    if scales is None:
        return x
    first, second = scales
    if first.numel() == second.numel() == 1:
        return x * (first.reshape(()) * second.reshape(()))
    return x * first.reshape(*x.shape[:-1], 1) * second.reshape(x.shape[-1])


def finished(
    x: Tensor, bias: Tensor | None, source: Tensor | None, alpha: float, beta: float, activation: str,
    dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    """The epilogue of a product `x` in f32 or f64: act(alpha · x + beta · source + bias) in `dtype`."""
    if alpha != 1.0:
        x = x * alpha
    if source is not None:
        x = x + beta * source.to(x.dtype)
    if bias is not None:
        x = x + bias.to(x.dtype)
    if activation != "none":
        x = FUNCTION_OF[activation](x)
    return _converted(x, dtype)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """A·B: in f64 for integers, which is exact; in f32 for others."""
    if a.dtype in EIGHT_BIT_INTEGERS:
        return torch.matmul(a.double(), b.double())
    return torch.matmul(a.float(), b.float())


def _converted(x: Tensor, dtype: torch.dtype) -> Tensor:
    if dtype in EIGHT_BIT_FLOATS or not dtype.is_floating_point:
        # Kernels saturate; torch's conversions wrap around or give NaN.
        limits = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
        x = x.clamp(limits.min, limits.max)
    return x.to(dtype) if dtype.is_floating_point else x.round().to(dtype)
