"""Products as cuBLASLt is told of them, as plain numbers: our launchers say them to it, and bundles hold them.

Our row-major matrices are column-major and transposed to the library, which computes Cᵀ = op(B)·op(A): B is its first
operand. B stored [N,K] is its matrix [K,N] and must be transposed; B stored [K,N] must not. For A it is the other way
round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from space.kinds.gemm import Gemm
from workers.cuda.copies import Strides

#: library_types.h: cudaDataType_t.
TYPES: Final = {
    "f32": 0, "tf32": 0, "fp16": 2, "int8": 3, "s32": 10, "bf16": 14, "fp8_e4m3": 28, "fp8_e5m2": 29,
}  # fmt: skip
#: Attributes of an operation that are numbers, and their bytes: names and types in cublasLtMatmulDescAttributes_t.
OPERATION_BYTES: Final = {
    "TRANSA": 4, "TRANSB": 4, "EPILOGUE": 4, "FAST_ACCUM": 1, "BIAS_DATA_TYPE": 4, "A_SCALE_MODE": 4,
    "B_SCALE_MODE": 4,
}  # fmt: skip
#: cublas_api.h: cublasComputeType_t and cublasOperation_t.
_COMPUTE_16F, _COMPUTE_32F, _COMPUTE_32I, _COMPUTE_TF32 = 64, 68, 72, 77
#: How sums are computed, and the dtype of alpha and beta, by accumulator; the others are f32.
_COMPUTES: Final = {"s32": (_COMPUTE_32I, "s32"), "fp16": (_COMPUTE_16F, "fp16")}
_OP_N, _OP_T = 0, 1
#: cublasLt.h: cublasLtEpilogue_t; the values are bits that add up.
_EPILOGUES: Final = {"relu": 2, "bias": 4, "gelu": 32}
#: cublasLt.h: CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F, from cuBLAS 12.9 on.
_OUTER_VECTORS: Final = 3


@dataclass(frozen=True, slots=True)
class Matrix:
    """A column-major matrix, one for each product of a batch.

    Attributes:
        dtype: a value of `TYPES`.
        line, matrix: from column to column and from matrix to matrix, in elements.
    """

    dtype: int
    rows: int
    columns: int
    line: int
    batch: int
    matrix: int


@dataclass(frozen=True, slots=True)
class Product:
    """A product as the library takes it.

    Attributes:
        compute: a cublasComputeType_t.
        scalar: the cudaDataType_t of alpha and beta.
        operation: attributes by their names in `OPERATION_BYTES`.
        first, second, source, output: the library's A, B, C and D: our B and A, the C that beta scales, and C.
    """

    compute: int
    scalar: int
    operation: Mapping[str, int]
    first: Matrix
    second: Matrix
    source: Matrix
    output: Matrix

    @property
    def matrices(self) -> tuple[Matrix, Matrix, Matrix, Matrix]:
        """In the library's order."""
        return self.first, self.second, self.source, self.output


def product_of(problem: Gemm, strides: Mapping[str, Strides] = MappingProxyType({})) -> Product:
    """A problem, which the library must have the dtypes of.

    Args:
        strides: of the operands `a` and `b` whose lines are apart.
    """
    m, n, k, dtype_c = problem.m, problem.n, problem.k, problem.dtype_c
    sums = _COMPUTES.get(problem.dtype_acc, (_COMPUTE_32F, "f32"))
    compute, scalars = (_COMPUTE_TF32, "f32") if problem.dtype_a == "tf32" else sums

    def matrix(dtype: str, rows: int, columns: int, lies: Strides | None = None) -> Matrix:
        lies = lies or Strides(rows, rows * columns)
        return Matrix(TYPES[dtype], rows, columns, lies.line, problem.batch, lies.matrix)

    of_b, of_a = ((k, n) if problem.layout[1] == "t" else (n, k)), ((k, m) if problem.layout[0] == "n" else (m, k))
    return Product(
        compute, TYPES[scalars], _operation(problem),
        matrix(problem.dtype_b, *of_b, strides.get("b")), matrix(problem.dtype_a, *of_a, strides.get("a")),
        # With an fp8 output the C that beta scales is bf16, read or not (cuBLAS documentation, cublasLtMatmul).
        matrix("bf16" if dtype_c.startswith("fp8") else dtype_c, n, m), matrix(dtype_c, n, m),
    )  # fmt: skip


def _operation(problem: Gemm) -> dict[str, int]:
    found = {
        "TRANSA": _OP_T if problem.layout[1] == "t" else _OP_N, "TRANSB": _OP_N if problem.layout[0] == "n" else _OP_T,
    }  # fmt: skip
    if problem.dtype_a.startswith("fp8"):
        found["FAST_ACCUM"] = int(problem.numerics == "fast")
    if problem.scales == "scaled_rowwise":
        found |= {"A_SCALE_MODE": _OUTER_VECTORS, "B_SCALE_MODE": _OUTER_VECTORS}
    if fused := problem.epilogue_parts & set(_EPILOGUES):
        found["EPILOGUE"] = sum(_EPILOGUES[part] for part in fused)
    if "bias" in fused:
        found["BIAS_DATA_TYPE"] = TYPES[problem.dtype_bias]
    return found
