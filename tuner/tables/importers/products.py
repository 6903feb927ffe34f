"""Products as torch names them: operator, extents, strides and dtypes as a problem, or why gemmtune tunes none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from space.errors import ProblemError
from space.kinds.gemm import Gemm
from tuner.tables.shapes import Tally

#: Operators that multiply matrices, with the place of A among their arguments; B follows it.
OPERATORS: Final = {
    "mm": 0, "bmm": 0, "addmm": 1, "addmm_": 1, "baddbmm": 1, "baddbmm_": 1, "_scaled_mm": 0, "_int_mm": 0,
}  # fmt: skip
#: Those of them that add their first argument, multiplied by beta, to the product, multiplied by alpha.
ADDING: Final = frozenset({"addmm", "addmm_", "baddbmm", "baddbmm_"})
#: beta and alpha where a call says none.
FACTORS: Final = (1.0, 1.0)
#: Operators that multiply matrices in groups, each group with its own B.
GROUPED: Final = ("_grouped_mm", "_scaled_grouped_mm", "_scaled_grouped_mm_v2", "grouped_mm")
#: Other operators that multiply matrices.
OTHERS: Final = frozenset({
    "mv", "addmv", "_addmm_activation", "_scaled_mm_v2", "_weight_int4pack_mm", "_weight_int8pack_mm",
    "_weight_int4pack_mm_with_scales_and_zeros", "_mixed_dtypes_linear", "_dyn_quant_matmul_4bit", "_cslt_sparse_mm",
    "_sparse_semi_structured_mm", "_sparse_semi_structured_addmm", "_sparse_semi_structured_linear", "_cudnn_rnn",
    "_cudnn_rnn_backward", "mkldnn_rnn_layer", "mkldnn_rnn_layer_backward",
})  # fmt: skip
#: Our name for each dtype of torch, its profiler and TunableOp.
DTYPES: Final = {
    "bfloat16": "bf16", "c10::BFloat16": "bf16", "BFloat16": "bf16",
    "float16": "fp16", "c10::Half": "fp16", "Half": "fp16",
    "float32": "f32", "float": "f32", "Float": "f32", "tf32": "tf32",
    "float8_e4m3fn": "fp8_e4m3", "c10::Float8_e4m3fn": "fp8_e4m3", "Float8_e4m3fn": "fp8_e4m3",
    "float8_e5m2": "fp8_e5m2", "c10::Float8_e5m2": "fp8_e5m2", "Float8_e5m2": "fp8_e5m2",
    "int8": "int8", "signed char": "int8", "int32": "s32", "int": "s32",
}  # fmt: skip
APART: Final = "products whose rows lie apart in memory are listed as dense ones"
NO_ELEMENTS: Final = "products without elements"
PLAIN_F32: Final = "f32 products in full precision: say --tf32 if the program allows tf32"


@dataclass(frozen=True, slots=True)
class Array:
    """An argument of an operator.

    Attributes:
        dtype: a key of `DTYPES`, or any other word.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str


def count_product(
    tally: Tally, operator: str, arrays: Sequence[Array | None], output: str, where: str, tf32: bool, fast: bool = True,
    factors: tuple[float, float] = FACTORS,
) -> None:  # fmt: skip
    """Counts one product, or the reason why it is none of ours.

    Args:
        operator: a key of `OPERATORS`.
        arrays: its arguments; None for those that are no arrays.
        output: dtype of C; empty if it follows from A.
        fast: whether 8-bit floats may be summed as the tensor core does.
        factors: beta and alpha of operators that add a matrix or a vector.
    """
    found = problem_of(operator, arrays, output, tf32, fast, factors)
    if isinstance(found, str):
        tally.leave_out(found)
        return
    tally.add(found, 1, where)
    first = OPERATORS[operator]
    if any(array is not None and not _dense(array) for array in arrays[first : first + 2]):
        tally.note(APART)


def problem_of(
    operator: str, arrays: Sequence[Array | None], output: str, tf32: bool, fast: bool = True,
    factors: tuple[float, float] = FACTORS,
) -> Gemm | str:  # fmt: skip
    """The problem, or why gemmtune tunes no such product."""
    first = OPERATORS[operator]
    a, b = arrays[first : first + 2] if len(arrays) >= first + 2 else (None, None)
    if a is None or b is None or len(a.shape) not in (2, 3) or len(a.shape) != len(b.shape):
        return f"{operator} without two matrices"
    batch = a.shape[0] if len(a.shape) == 3 else 1
    (m, k), n = a.shape[-2:], b.shape[-1]
    if min(batch, m, n, k) < 1:
        return NO_ELEMENTS
    if b.shape[-2] != k or (len(b.shape) == 3 and b.shape[0] != batch):
        return f"{operator} of matrices that don't go together"
    if operator == "_scaled_mm" and not _scales(arrays, m, n):
        return "8-bit floats with a scale for each block: gemmtune's kernels have one for all, or one for each row"
    dtypes = _dtypes(a.dtype, b.dtype, output, tf32, fast)
    if isinstance(dtypes, str):
        return dtypes
    letters = _letter(a), _letter(b)
    if "" in letters:
        return "products whose operands have no dense rows or columns"
    layout = letters[0] + letters[1]
    try:
        return Gemm(m, n, k, *dtypes, layout=layout, batch=batch, epilogue=_epilogue(operator, arrays, m, n, factors))
    except ProblemError as error:
        return f"products that gemmtune has no kernels for: {error}"


def _dtypes(a: str, b: str, output: str, tf32: bool, fast: bool) -> tuple[str, str, str, str] | str:
    ours = [DTYPES.get(word.removeprefix("torch.")) for word in (a, b)]
    if ours == ["f32", "f32"]:
        if not tf32:
            return PLAIN_F32
        ours = ["tf32", "tf32"]
    if None in ours or "s32" in ours or "f32" in ours:
        return f"{a} × {b} products: gemmtune has no kernels for them"
    first, second = str(ours[0]), str(ours[1])
    usual = {"tf32": "f32", "int8": "s32", "fp8_e4m3": "bf16", "fp8_e5m2": "bf16"}.get(first, first)
    c = DTYPES.get(output.removeprefix("torch.")) if output else usual
    if c is None:
        return f"products with {output} results: gemmtune has no kernels for them"
    whole, eight = first == "int8", first.startswith("fp8")
    return first, second, c, "s32" if whole else "f32_promoted" if eight and not fast else "f32"


def _epilogue(operator: str, arrays: Sequence[Array | None], m: int, n: int, factors: tuple[float, float]) -> str:
    if operator in ADDING:
        added, (beta, alpha) = arrays[0], factors
        # A vector is a bias; a matrix like C is a source that beta multiplies. What 0 multiplies is not read.
        vectors = ((n,),) if m == 1 else ((n,), (1, n))
        second = "" if beta == 0 else "bias" if added is not None and added.shape in vectors else "beta"
        return "+".join(part for part in ("alpha" if alpha != 1 else "", second) if part) or "none"
    if operator == "_scaled_mm":
        bias = arrays[4] if len(arrays) > 4 else None
        scales = _scales(arrays, m, n)
        return f"{scales}+bias" if bias is not None and bias.shape == (n,) else scales
    return "none"


def _scales(arrays: Sequence[Array | None], m: int, n: int) -> str:
    """Which of `space.kinds.gemm.SCALES` the scales of `_scaled_mm` are; empty for blocks."""
    shapes = [each.shape for each in arrays[2:4] if each is not None]
    if all(math.prod(shape) == 1 for shape in shapes):
        return "scaled"
    return "scaled_rowwise" if shapes == [(m, 1), (1, n)] else ""


def _letter(array: Array) -> str:
    """`n` for dense rows, `t` for dense columns of a matrix, as `gemmtune.layouts` reads it; empty for neither."""
    (rows, columns), (down, along) = array.shape[-2:], array.strides[-2:]
    if columns == 1 or along == 1:
        return "t" if columns == 1 < rows and down == 1 else "n"
    return "t" if rows == 1 or down == 1 else ""


def _dense(array: Array) -> bool:
    (rows, columns), (down, along) = array.shape[-2:], array.strides[-2:]
    return rows == 1 or columns == 1 or (along == 1 and down == columns) or (down == 1 and along == rows)
