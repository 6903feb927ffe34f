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
    plain = bias is None and source is None and alpha == 1.0 and activation == "none" and scales is None
    with uncast(a.device):
        if plain and a.dtype == b.dtype == dtype and a.is_floating_point() and a.dtype not in EIGHT_BIT_FLOATS:
            return torch.matmul(a, b)
        return finished(scaled(_product(a, b, dtype), scales), bias, source, alpha, beta, activation, dtype)


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


def _product(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """A·B: in f64 for integers, which is exact; in f32 for 8-bit floats and for an f32 C."""
    if a.dtype in EIGHT_BIT_INTEGERS:
        return torch.matmul(a.double(), b.double())
    if a.dtype in EIGHT_BIT_FLOATS or dtype == torch.float32:
        return torch.matmul(a.float(), b.float())
    return torch.matmul(a, b).float()


def _converted(x: Tensor, dtype: torch.dtype) -> Tensor:
    if dtype in EIGHT_BIT_FLOATS or not dtype.is_floating_point:
        # Kernels saturate; torch's conversions wrap around or give NaN.
        limits = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
        x = x.clamp(limits.min, limits.max)
    return x.to(dtype) if dtype.is_floating_point else x.round().to(dtype)
