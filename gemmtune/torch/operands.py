"""Operands: turns tensors into a problem, or says why no kernel accepts them without a copy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import torch
from torch import Tensor

from gemmtune.layouts import READABLE, layout_of
from space.errors import ProblemError
from space.kinds.gemm import ACTIVATIONS, SCALES, Gemm
from workers.cuda.copies import Strides

#: Our name of each torch dtype. f32 operands are multiplied as tf32 if torch may use tf32.
INPUTS: Final = {
    torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "tf32", torch.float8_e4m3fn: "fp8_e4m3",
    torch.float8_e5m2: "fp8_e5m2", torch.int8: "int8", torch.uint8: "uint8",
}  # fmt: skip
EIGHT_BIT_FLOATS: Final = (torch.float8_e4m3fn, torch.float8_e5m2)
EIGHT_BIT_INTEGERS: Final = (torch.int8, torch.uint8)
#: dtypes that are multiplied by one another too.
_MIXED: Final = (EIGHT_BIT_FLOATS, EIGHT_BIT_INTEGERS)
_MULTIPLIED: Final = f"kernels multiply {', '.join(map(str, INPUTS))}; convert it"
OUTPUTS: Final = {
    torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "f32", torch.float8_e4m3fn: "fp8_e4m3",
    torch.float8_e5m2: "fp8_e5m2", torch.int32: "s32", torch.int8: "int8",
}  # fmt: skip
#: C's default dtype by the operands': the same, but bf16 for 8-bit floats and s32 for integers.
OUTPUT_OF: Final = {dtype: dtype for dtype in INPUTS} | {
    torch.float8_e4m3fn: torch.bfloat16, torch.float8_e5m2: torch.bfloat16, torch.int8: torch.int32,
    torch.uint8: torch.int32,
}  # fmt: skip


class Refused(ValueError):
    """No kernel accepts these tensors; nothing was launched. The message says why and what to change."""


def output_dtype(a: Tensor, out_dtype: torch.dtype | None) -> torch.dtype:
    """The dtype of C.

    Raises:
        Refused: C can't have this dtype.
    """
    if a.dtype not in INPUTS:
        raise Refused(f"a is {a.dtype}: {_MULTIPLIED}")
    dtype = out_dtype or OUTPUT_OF[a.dtype]
    if dtype not in OUTPUTS:
        raise Refused(f"C can't have out_dtype {dtype}: use one of {', '.join(map(str, OUTPUTS))}")
    return dtype


def output_shape(a: Tensor, b: Tensor) -> list[int]:
    """Shape of C for A [..., M, K] and B [K, N], or A [batch, M, K] and B [batch, K, N].

    Raises:
        Refused: the shapes don't go together.
    """
    if a.dim() < 2 or b.dim() < 2:
        raise Refused(f"a has {a.dim()} dimensions and b {b.dim()}: give matrices; a vector is one row, x[None]")
    if a.shape[-1] != b.shape[-2]:
        raise Refused(f"a is {tuple(a.shape)} and b {tuple(b.shape)}: a's columns must be b's rows")
    if b.dim() > 3 or (b.dim() == 3 and (a.dim() != 3 or a.shape[0] != b.shape[0])):
        raise Refused(
            f"a is {tuple(a.shape)} and b {tuple(b.shape)}: b must be one matrix, or both must have the same batch; "
            f"batches are not broadcast: expand and reshape first"
        )
    return [*a.shape[:-1], b.shape[-1]]


def problem_of(
    a: Tensor, b: Tensor, bias: Tensor | None, source: Tensor | None, alpha: float, activation: str,
    dtype: torch.dtype, promoted: bool, scales: str = "",
) -> Gemm:  # fmt: skip
    """The problem that the tensors define; the strides give the layouts.

    Args:
        scales: how the operands are scaled on the device, one of `space.kinds.gemm.SCALES`.

    Raises:
        Refused: no kernel accepts a dtype, device, shape or stride; the message gives the reason.
    """
    shape = output_shape(a, b)
    for name, tensor in (("a", a), ("b", b)):
        if tensor.dtype not in INPUTS:
            raise Refused(f"{name} is {tensor.dtype}: {_MULTIPLIED}")
    check_devices(a, b, bias, source)
    batch = a.shape[0] if b.dim() == 3 else 1
    flat = _flattened(a, b)
    rows = flat.shape[-2]
    letters = _lies("a", flat)[0], _lies("b", b)[0]
    given = {scales: bool(scales), "alpha": alpha != 1.0, "beta": source is not None, "bias": bias is not None}
    parts = [part for part, has in given.items() if has]
    if activation != "none":
        if activation not in ACTIVATIONS:
            raise Refused(f"activation {activation!r} is unknown: use none, {', '.join(ACTIVATIONS)}")
        parts.append(activation)
    whole = a.dtype in (torch.int8, torch.uint8)
    summed = "s32" if whole else "f32_promoted" if promoted else "f32"
    dtypes = (INPUTS[a.dtype], INPUTS[b.dtype], OUTPUTS[dtype], summed)
    try:
        problem = Gemm(
            rows, b.shape[-1], a.shape[-1], *dtypes, layout="".join(letters), batch=batch,
            epilogue="+".join(parts) or "none",
        )  # fmt: skip
    except ProblemError as error:
        raise Refused(f"a {tuple(a.shape)} {a.dtype} by b {tuple(b.shape)} {b.dtype}: {error}") from error
    _check_epilogue(problem, shape, bias, source, dtype)
    return problem


def check_composed(a: Tensor, b: Tensor, bias: Tensor | None, source: Tensor | None, dtype: torch.dtype) -> None:
    """Checks what torch's own operators would take and make another C of; they read any strides.

    Raises:
        Refused: shapes don't go together, or a conversion would lose gradients or imaginary parts.
    """
    shape = output_shape(a, b)
    check_devices(a, b, bias, source)
    if b.dtype not in INPUTS:
        raise Refused(f"b is {b.dtype}: {_MULTIPLIED}")
    if a.dtype != b.dtype and not any(a.dtype in each and b.dtype in each for each in _MIXED):
        raise Refused(f"b is {b.dtype} beside an a of {a.dtype}: convert one")
    if a.is_floating_point() and not dtype.is_floating_point:
        raise Refused(f"C can't have out_dtype {dtype} where a is {a.dtype}: give a dtype of floats")
    if bias is not None and list(bias.shape) != shape[-1:]:
        raise Refused(f"bias is {tuple(bias.shape)}: it must be ({shape[-1]},), one element per column")
    if source is not None and list(source.shape) != shape:
        raise Refused(f"source is {tuple(source.shape)}: it must be like C, {tuple(shape)}")


def scaling_of(
    a: Tensor, b: Tensor, scale_a: Tensor | None, scale_b: Tensor | None, source: Tensor | None = None,
    alpha: float | Tensor = 1.0,
) -> str:  # fmt: skip
    """Which of `space.kinds.gemm.SCALES` the scales of A [..., M, K] and B [K, N] are; empty without any.

    Raises:
        Refused: they are neither one number each nor one for each row of A and column of B, in dense f32 beside A; or
            of other operands than matrices of 8-bit floats, or beside a source or an alpha.
    """
    if scale_a is None and scale_b is None:
        return ""
    if scale_a is None or scale_b is None:
        raise Refused(f"scale_{'a' if scale_a is None else 'b'} is missing: give both scales, or none")
    if a.dtype not in EIGHT_BIT_FLOATS or (b.dim() == 3 and b.shape[0] != 1):
        raise Refused(f"scales are for matrices of 8-bit floats, and b is {tuple(b.shape)} beside an a of {a.dtype}: "
                      "give alpha, a number")  # fmt: skip
    if source is not None or isinstance(alpha, Tensor) or alpha != 1.0:
        raise Refused("scales replace alpha and source: multiply a scale by alpha, and add the source to C")
    for name, scale in (("scale_a", scale_a), ("scale_b", scale_b)):
        if scale.dtype is not torch.float32 or scale.device != a.device or not scale.is_contiguous():
            raise Refused(f"{name} is {tuple(scale.shape)} {scale.dtype} on {scale.device}: give dense "
                          f"{torch.float32} on {a.device}")  # fmt: skip
    sizes, rows, columns = (scale_a.numel(), scale_b.numel()), math.prod(a.shape[:-1]), b.shape[-1]
    if sizes == (1, 1):
        return SCALES[0]
    if sizes == (rows, columns):
        return SCALES[1]
    raise Refused(f"scales are {tuple(scale_a.shape)} and {tuple(scale_b.shape)}: give one number each, or {rows} for "
                  f"a's rows and {columns} for b's columns")  # fmt: skip


def strides_of(a: Tensor, b: Tensor) -> dict[str, Strides]:
    """Strides of a problem's operands `a` and `b` if their rows or columns lie apart; empty if both are dense."""
    lies = {"a": _lies("a", _flattened(a, b))[1], "b": _lies("b", b)[1]}
    return {name: strides for name, strides in lies.items() if strides is not None}


def check_devices(a: Tensor, b: Tensor, bias: Tensor | None, source: Tensor | None) -> None:
    """Checks that all operands are on one device.

    Raises:
        Refused: an operand is not on the device of `a`.
    """
    for name, tensor in (("b", b), ("bias", bias), ("source", source)):
        if tensor is not None and tensor.device != a.device:
            raise Refused(f"{name} is on {tensor.device}, a on {a.device}: move it")


def overlapping(out: Tensor, others: Sequence[tuple[str, Tensor | None]]) -> str:
    """Name of the first input that shares memory with `out`; empty if none does."""
    begin, end = _range(out)
    for name, tensor in others:
        if tensor is not None and tensor.device == out.device:
            other_begin, other_end = _range(tensor)
            if begin < other_end and other_begin < end:
                return name
    return ""


def separate(out: Tensor, strides: Mapping[str, Strides], a: Tensor, b: Tensor, *others: Tensor | None) -> bool:
    """Whether `out` shares no memory with any input, where `strides` says how `a` and `b` lie."""
    if strides:
        return not overlapping(out, [("an operand", each) for each in (a, b, *others)])
    return apart(out, a, b, *others)


def apart(out: Tensor, *others: Tensor | None) -> bool:
    """Whether `out` shares no memory with any input; valid only for tensors without gaps."""
    begin = out.data_ptr()
    end = begin + out.nbytes
    for tensor in others:
        if tensor is not None:
            other = tensor.data_ptr()
            if begin < other + tensor.nbytes and other < end:
                return False
    return True


def check_output(out: Tensor, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> None:
    """Checks that `out` can hold C.

    Raises:
        Refused: it has another shape, dtype or device, or is not contiguous.
    """
    if list(out.shape) != list(shape) or out.dtype != dtype or out.device != device:
        raise Refused(
            f"out is {tuple(out.shape)} {out.dtype} on {out.device}, C is {tuple(shape)} {dtype} on {device}: "
            f"omit out, or give a tensor like C"
        )
    if not out.is_contiguous():
        raise Refused(f"out has strides {out.stride()}: C is written row by row: give a contiguous tensor")


def _range(tensor: Tensor) -> tuple[int, int]:
    begin = tensor.data_ptr()
    if tensor.numel() == 0:
        return begin, begin
    reach = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return begin, begin + (reach + 1) * tensor.element_size()


def _flattened(a: Tensor, b: Tensor) -> Tensor:
    """A with as many dimensions as B: rows of any number of dimensions are rows of one matrix."""
    if a.dim() == b.dim():
        return a
    try:
        return a.view(math.prod(a.shape[:-1]), a.shape[-1])
    except RuntimeError as error:
        raise Refused(_strided("a", a)) from error


def _lies(name: str, matrix: Tensor) -> tuple[str, Strides | None]:
    """`n` or `t`, and how its lines lie if apart, as `layout_of` says."""
    found = layout_of(matrix.shape, matrix.stride(), matrix.element_size())
    if found is None:
        raise Refused(_strided(name, matrix))
    return found


def _strided(name: str, tensor: Tensor) -> str:
    return f"{name} is {tuple(tensor.shape)} with strides {tensor.stride()}: {READABLE}; call {name}.contiguous()"


def _check_epilogue(
    problem: Gemm, shape: Sequence[int], bias: Tensor | None, source: Tensor | None, dtype: torch.dtype
) -> None:
    if bias is not None:
        wanted = dtype if problem.dtype_bias == problem.dtype_c else torch.float32
        if bias.shape != (problem.n,) or bias.dtype != wanted or not bias.is_contiguous():
            raise Refused(
                f"bias is {tuple(bias.shape)} {bias.dtype}: it must be ({problem.n},) {wanted}, contiguous, one "
                "element per column"
            )
    if source is not None and (list(source.shape) != list(shape) or source.dtype != dtype
                               or not source.is_contiguous()):  # fmt: skip
        raise Refused(f"source is {tuple(source.shape)} {source.dtype}: it must be like C, {tuple(shape)} {dtype}, "
                      f"contiguous")  # fmt: skip
