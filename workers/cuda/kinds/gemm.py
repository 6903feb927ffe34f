"""The kind `gemm` in the GPU process: scalars, and the exact C in float64 with a bound for each element."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping
from typing import ClassVar, Final

from space.kinds.gemm import Gemm
from workers.cuda.bounds import FORMATS, MOST_EXACT_HALF_K, bounds_of
from workers.cuda.copies import Copy
from workers.cuda.driver import Buffer
from workers.cuda.kinds.runtime import Reference, Runtime
from workers.cuda.toolbox import ACTIVATIONS, ELEMENTS, REFERENCE_TILE, Finish, Operand, Toolbox, pointer

#: Mean and mean square of the whole range of an 8-bit integer, which operands of it hold.
_WHOLE: Final = {"int8": (-0.5, 5_461.5), "uint8": (127.5, 21_717.5)}


def operand_a(problem: Gemm, address: int) -> Operand:
    """A of a problem: rows of M."""
    m, k = problem.m, problem.k
    strides = (1, m) if problem.layout[0] == "t" else (k, 1)
    return Operand(address, *strides, m * k, m, ELEMENTS[problem.dtype_a])


def operand_b(problem: Gemm, address: int) -> Operand:
    """B of a problem: rows of N."""
    n, k = problem.n, problem.k
    strides = (1, n) if problem.layout[1] == "n" else (k, 1)
    return Operand(address, *strides, n * k, n, ELEMENTS[problem.dtype_b])


def scalars(problem: Gemm, seed: int) -> tuple[float, float]:
    """alpha and beta: multiples of 1/64 from 0.5 to 1.5, drawn from the seed.

    alpha also has a power of two as a factor where C would overflow without it: after integer sums, and in 8 bits.
    """
    alpha = (32 + seed % 65) / 64 if "alpha" in problem.epilogue_parts else 1.0
    beta = (32 + seed // 65 % 65) / 64 if "beta" in problem.epilogue_parts else 0.0
    whole = problem.dtype_acc == "s32"
    if "alpha" in problem.epilogue_parts and (whole or problem.dtype_c.startswith("fp8")) and problem.dtype_c != "s32":
        wanted = {"int8": 32.0, "fp8_e4m3": 8.0, "fp8_e5m2": 8.0}.get(problem.dtype_c, 1.0)
        alpha *= 2.0 ** round(math.log2(wanted / _size_of_sums(problem)))
    return alpha, beta


def _size_of_sums(problem: Gemm) -> float:
    """A deviation of the sums, and most of their mean, which unsigned operands have: a C at an end of its range would
    hide whatever is wrong."""
    mean, square = 0.0, 1.0
    if problem.dtype_acc == "s32":
        (mean_a, square_a), (mean_b, square_b) = _WHOLE[problem.dtype_a], _WHOLE[problem.dtype_b]
        mean, square = mean_a * mean_b, square_a * square_b
    return math.sqrt(problem.k * (square - mean**2)) + 0.75 * problem.k * abs(mean)


class GemmReference(Reference):
    """The exact C of one problem, and how far a correct kernel may be from each element."""

    method: ClassVar[str] = "float64 on the CUDA cores"

    def __init__(self, problem: Gemm, tools: Toolbox, exact_sums: bool = False) -> None:
        self._problem, self._tools, self._exact_sums = problem, tools, exact_sums
        self.elements = problem.m * problem.n * problem.batch
        self._values = Buffer.allocate(8 * self.elements)
        self._bounds = Buffer.allocate(4 * self.elements)
        self._norms_a = Buffer.allocate(4 * problem.m * problem.batch)
        self._norms_b = Buffer.allocate(4 * problem.n * problem.batch)

    @property
    def values(self) -> int:
        """Address of the expected values, float64 [batch][M][N]."""
        return self._values.address

    @property
    def bounds(self) -> int:
        """Address of the bounds, f32 [batch][M][N]."""
        return self._bounds.address

    def compute(self, copy: Copy) -> None:
        """Computes values and bounds from the operands of one copy."""
        problem = self._problem
        a, b = operand_a(problem, copy.a), operand_b(problem, copy.b)
        k, batch = ctypes.c_int(problem.k), ctypes.c_int(problem.batch)
        tiles = -(-problem.m // REFERENCE_TILE) * -(-problem.n // REFERENCE_TILE) * problem.batch
        self._tools.run("reference_sums", a, b, pointer(self.values), k, blocks=tiles)
        self._tools.run("row_norms", a, pointer(self._norms_a.address), k, batch)
        self._tools.run("row_norms", b, pointer(self._norms_b.address), k, batch)
        self._tools.run("finish_reference", self._finish(copy))

    def free(self) -> None:
        """Gives memory back."""
        for buffer in (self._values, self._bounds, self._norms_a, self._norms_b):
            buffer.free()

    def _finish(self, copy: Copy) -> Finish:
        problem = self._problem
        bounds, form = bounds_of(problem, self._exact_sums), FORMATS[problem.dtype_c]
        kind = next((part for part in problem.epilogue_parts if part in ACTIVATIONS), "")
        return Finish(
            reference=self.values, bound=self.bounds, norms_a=self._norms_a.address, norms_b=self._norms_b.address,
            source=copy.source or None, bias=copy.bias or None, alpha=copy.alpha, beta=copy.beta,
            scale_a=copy.scale_a or None, scale_b=copy.scale_b or None,
            scaled_rowwise=int(problem.scales == "scaled_rowwise"),
            accumulation=bounds.accumulation, epilogue=bounds.epilogue, activation=bounds.activation,
            rounding=bounds.rounding, smallest=bounds.smallest, most=form.most, least=form.least,
            count=self.elements, m=problem.m, n=problem.n, element_c=ELEMENTS[problem.dtype_c],
            element_bias=ELEMENTS[problem.dtype_bias], kind=ACTIVATIONS[kind], saturates=form.saturates,
        )  # fmt: skip


class GemmRuntime(Runtime):
    """Copies are `workers.cuda.copies.Copy`."""

    def copy(self, problem: Gemm, addresses: Mapping[str, int], seed: int) -> Copy:
        """The arrays, with alpha and beta from the seed."""
        at = addresses
        return Copy(
            at["a"], at["b"], at["c"], at.get("source", 0), at.get("bias", 0), *scalars(problem, seed),
            at.get("scale_a", 0), at.get("scale_b", 0),
        )  # fmt: skip

    def reference(self, problem: Gemm, tools: Toolbox, exact_sums: bool = False) -> GemmReference:
        """C in float64."""
        return GemmReference(problem, tools, exact_sums)

    def probes(self, problem: Gemm) -> bool:
        """Sums in fewer bits than f32's have bounds that grow as K does (see `bounds.accumulation_share`)."""
        if problem.dtype_acc == "fp16":
            return problem.k <= MOST_EXACT_HALF_K
        return problem.dtype_a.startswith("fp8") and problem.numerics == "fast"

    def place(self, problem: Gemm, element: int) -> str:
        """Row and column, and the product where there is a batch."""
        row, column = element // problem.n, element % problem.n
        product = f" of product {row // problem.m}" if problem.batch > 1 else ""
        return f"row {row % problem.m}, column {column}{product}"


RUNTIME: Final = GemmRuntime()
