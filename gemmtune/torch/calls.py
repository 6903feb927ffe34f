"""Calls: the arguments of torch's operators as our kernels take them, and the problems that they are."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from gemmtune.torch import operands
from gemmtune.torch.operands import OUTPUT_OF, OUTPUTS, Refused
from gemmtune.torch.private import allows_tf32
from space.kinds.gemm import Gemm

#: Places of the other arguments of `_scaled_mm`.
_BIAS, _SCALE_RESULT, _OUT_DTYPE, _FAST = 4, 5, 6, 7
#: dtypes that torch's own operators multiply on a GPU; others only by `_scaled_mm`, or not at all.
MULTIPLIED: Final = frozenset({torch.bfloat16, torch.float16, torch.float32})
#: `_scaled_mm` takes K and N that are multiples of this.
_STEP: Final = 16
#: Any alpha but 1: scales multiply the product as alpha does.
_SCALED: Final = 2.0


class Parts(NamedTuple):
    """A call as our kernels take it; a tuple, because the host's time counts.

    Attributes:
        output: dtype of C.
        scales: of A and B, f32 on the device: one each, or one for each row and column.
        scaling: which of `space.kinds.gemm.SCALES` they are; empty without.
        promoted: whether sums of 8-bit floats are in true f32.
    """

    a: Tensor
    b: Tensor
    bias: Tensor | None = None
    source: Tensor | None = None
    alpha: float = 1.0
    beta: float = 0.0
    output: torch.dtype | None = None
    scales: tuple[Tensor, Tensor] | None = None
    scaling: str = ""
    promoted: bool = False


def tf32() -> bool:
    """Whether torch may multiply f32 as tf32; not where settings contradict each other, which torch refuses to tell."""
    try:
        return bool(allows_tf32())
    except RuntimeError:
        return False


def _scaled_parts(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Parts | None:
    """The operands of `_scaled_mm`; None where blocks have scales, and where torch has something to say."""
    bias, scale_result, output, fast = (
        args[place] if len(args) > place else kwargs.get(name, usual)
        for place, name, usual in ((_BIAS, "bias", None), (_SCALE_RESULT, "scale_result", None),
                                   (_OUT_DTYPE, "out_dtype", None), (_FAST, "use_fast_accum", False))
    )  # fmt: skip
    a, b, first, second = args[:4]
    scaling = _scaling(a, b, first, second)
    if scale_result is not None or not scaling or not _torch_scales(a, b):
        return None
    out = kwargs.get("out")
    dtype = output or (a.dtype if out is None else out.dtype)
    if scaling == "scaled_rowwise" and dtype is not torch.bfloat16:
        return None
    return Parts(a, b, bias, output=dtype, scales=(first, second), scaling=scaling, promoted=not fast)


def _scaling(a: Tensor, b: Tensor, first: Tensor, second: Tensor) -> str:
    """Which of `space.kinds.gemm.SCALES` the scales of A [M,K] and B [K,N] are; empty for neither."""
    if any(scale.dtype is not torch.float32 or scale.device != a.device for scale in (first, second)):
        return ""
    if first.numel() == 1 and second.numel() == 1:
        return "scaled"
    rowwise = first.shape == (a.shape[0], 1) and second.shape == (1, b.shape[1])
    return "scaled_rowwise" if rowwise and first.is_contiguous() and second.is_contiguous() else ""


def _torch_scales(a: Tensor, b: Tensor) -> bool:
    """Whether torch's `_scaled_mm` takes A and B: what it refuses stays refused."""
    both_e5m2 = a.dtype is torch.float8_e5m2 and b.dtype is torch.float8_e5m2
    along_k = a.stride(1) == 1 and b.stride(0) == 1
    return along_k and not both_e5m2 and a.shape[1] % _STEP == 0 and b.shape[1] % _STEP == 0


def parts_of(overload: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Parts | None:
    """A call's operands; None where our kernels compute something else."""
    if overload.startswith("_scaled_mm"):
        return _scaled_parts(args, kwargs)
    if not overload.startswith("addmm"):
        return Parts(args[0], args[1]) if len(args) == 2 and args[0].dtype in MULTIPLIED else None
    if len(args) != 3 or args[1].dtype not in MULTIPLIED:
        return None
    added, a, b = args
    alpha, beta = kwargs.get("alpha", 1), kwargs.get("beta", 1)
    if not isinstance(alpha, int | float) or not isinstance(beta, int | float) or not alpha or not beta:
        # What is multiplied by 0 is not read: not even a NaN of it reaches C.
        return None
    if added.dim() == 1:
        return Parts(a, b, bias=added, alpha=float(alpha)) if beta == 1 else None
    return Parts(a, b, source=added, alpha=float(alpha), beta=float(beta)) if added.dim() == 2 else None


def problem_of(parts: Parts, scales: str = "") -> Gemm | None:
    """The problem of a call; scales that have no word there are an alpha. None where no kernel takes its operands."""
    a, b = parts.a, parts.b
    if a.numel() == 0 or b.numel() == 0 or a.dtype not in OUTPUT_OF:
        return None
    if a.dtype is torch.float32 and not tf32():
        return None
    alpha = _SCALED if parts.scaling and not scales else parts.alpha
    output = parts.output or OUTPUT_OF[a.dtype]
    if output not in OUTPUTS:
        return None
    try:
        return operands.problem_of(a, b, parts.bias, parts.source, alpha, "none", output, parts.promoted, scales)
    except Refused:
        return None


def output_of(parts: Parts) -> tuple[tuple[int, ...], torch.dtype]:
    """Shape and dtype of C."""
    return (*parts.a.shape[:-1], parts.b.shape[-1]), parts.output or OUTPUT_OF[parts.a.dtype]
