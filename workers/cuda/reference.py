"""Reference: the exact C of one problem, computed on the GPU in float64, with the bound of each element."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final

from space.kinds.gemm import Gemm
from workers.cuda.bounds import FORMATS, bounds_of
from workers.cuda.driver import Buffer
from workers.cuda.toolbox import ACTIVATIONS, ELEMENTS, REFERENCE_TILE, Finish, Operand, Toolbox, pointer

if TYPE_CHECKING:
    from workers.cuda.operands import Copy

METHOD: Final = "float64 on the CUDA cores"


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


class Reference:
    """Expected values in float64 and bounds in f32 for every element of C.

    Args:
        exact_sums: the operands' sums need no rounding.
    """

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

    @staticmethod
    def size_bytes(problem: Gemm) -> int:
        """Memory of one reference."""
        return (12 * problem.m * problem.n + 4 * (problem.m + problem.n)) * problem.batch

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
            accumulation=bounds.accumulation, epilogue=bounds.epilogue, activation=bounds.activation,
            rounding=bounds.rounding, smallest=bounds.smallest, most=form.most, least=form.least,
            count=self.elements, m=problem.m, n=problem.n, element_c=ELEMENTS[problem.dtype_c],
            element_bias=ELEMENTS[problem.dtype_bias], kind=ACTIVATIONS[kind], saturates=form.saturates,
        )  # fmt: skip
