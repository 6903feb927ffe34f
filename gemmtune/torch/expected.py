"""Expected results: random operands of a problem, C in f64, and how far each element of a correct C may be from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

import torch
from torch import Tensor

from gemmtune.torch.composed import FUNCTION_OF
from gemmtune.torch.operators import DTYPES
from space.kinds.gemm import Gemm
from workers.cuda.bounds import FORMATS, bounds_of
from workers.cuda.copies import Strides

#: Memory of the f64 operands of one block of C.
_BLOCK_BYTES: Final = 256 << 20
#: Fewest and most rows and columns of a block.
_SIDES: Final = (64, 4096)
#: Bits of an f32 that tf32 does not have.
_BELOW_TF32: Final = -(1 << 13)
#: No activation is steeper.
_STEEPEST: Final = 1.13
_SEED: Final = 20_011


class Expected:
    """One problem on random data.

    Args:
        strides: of the operands `a` and `b` whose lines are apart; NaN lies between them.

    Attributes:
        a, b, bias, source: operands, of `[batch, rows, columns]` where they are matrices.
        alpha, beta: exact in f32; 1 and 0 where the epilogue has none.
        scales: of A and B in f32, of `[1]` or `[M, 1]` and `[1, N]`; None where the epilogue has none.
        shape, dtype, elements: of C.
        activation: `none` where the epilogue has none.
    """

    def __init__(
        self, problem: Gemm, device: torch.device, strides: Mapping[str, Strides] = MappingProxyType({})
    ) -> None:
        self.problem, self.device, self._strides = problem, device, strides
        self._random = torch.Generator(device).manual_seed(_SEED)
        batch, m, n, k = problem.batch, problem.m, problem.n, problem.k
        parts = problem.epilogue_parts
        self.a = self._matrices("a", problem.dtype_a, m, k, transposed=problem.layout[0] == "t")
        self.b = self._matrices("b", problem.dtype_b, k, n, transposed=problem.layout[1] == "t")
        self.source = self._matrices("source", problem.dtype_c, m, n) if "beta" in parts else None
        self.bias = self._made(problem.dtype_bias, n) if "bias" in parts else None
        self.alpha, self.beta = (1.5 if "alpha" in parts else 1.0), (-0.75 if "beta" in parts else 0.0)
        self.scales = self._scales()
        self.shape, self.dtype = (batch, m, n), DTYPES[problem.dtype_c]
        self.elements = batch * m * n
        self.activation = next((name for name in FUNCTION_OF if name in parts), "none")
        self._bounds, self._format = bounds_of(problem), FORMATS[problem.dtype_c]

    def arguments(self, c: Tensor) -> tuple[object, ...]:
        """Of a launch into C: a, b, bias, source, alpha, beta and c, and the scales where the problem has some."""
        given = self.a, self.b, self.bias, self.source, self.alpha, self.beta, c
        return (*given, self.scales) if self.scales else given

    def difference(self, c: Tensor) -> str:
        """How many elements of C are wrong, and the first of them; empty if none is. NaN is wrong."""
        wrong, first = 0, ""
        for item, rows, columns in self._blocks():
            expected, bound = self._block(item, rows, columns)
            least, most = self._format.least, self._format.most
            # Beyond the range, a correct C is at its end, or infinite.
            made, expected = c[item, rows, columns].double().clamp(least, most), expected.clamp(least, most)
            bad = ~((made - expected).abs() <= bound)
            count = int(bad.sum())
            if count and not first:
                row, column = (int(place) for place in bad.nonzero()[0])
                first = (
                    f"C[{item}, {rows.start + row}, {columns.start + column}] is {float(made[row, column]):.6g}, not "
                    f"{float(expected[row, column]):.6g} ± {float(bound[row, column]):.2g}"
                )
            wrong += count
        return (wrong and f"{wrong:,} of {self.elements:,} elements are off, {first}") or ""

    def _blocks(self) -> Iterator[tuple[int, slice, slice]]:
        problem = self.problem
        side = min(max(_BLOCK_BYTES // (16 * problem.k), _SIDES[0]), _SIDES[1])
        for item in range(problem.batch):
            for row in range(0, problem.m, side):
                for column in range(0, problem.n, side):
                    yield item, slice(row, row + side), slice(column, column + side)

    def _block(self, item: int, rows: slice, columns: slice) -> tuple[Tensor, Tensor]:
        """A block of C in f64, and the bound of its elements; `finish_element` of the tuner's verification."""
        a, b = self.a[item, rows].double(), self.b[item, :, columns].double()
        shares = self._bounds
        factor = self._factor(rows, columns)
        x = factor * (a @ b)
        terms = x.abs()
        error = factor.abs() * shares.accumulation * a.norm(dim=1)[:, None] * b.norm(dim=0)[None]
        if self.source is not None:
            added = self.beta * self.source[item, rows, columns].double()
            x, terms = x + added, terms + added.abs()
        if self.bias is not None:
            added = self.bias[columns].double()
            x, terms = x + added, terms + added.abs()
        error = error + shares.epilogue * terms
        y = x
        if self.activation != "none":
            y = FUNCTION_OF[self.activation](x)
            error = _STEEPEST * error + shares.activation * x.abs()
        return y, shares.rounding * (y.abs() + error) + error + shares.smallest

    def _scales(self) -> tuple[Tensor, Tensor] | None:
        problem = self.problem
        if not problem.scales:
            return None
        shapes = ((problem.m, 1), (1, problem.n)) if problem.scales == "scaled_rowwise" else ((1,), (1,))
        of = {"dtype": torch.float32, "device": self.device, "generator": self._random}
        made = (torch.rand(shape, **of) + 0.5 for shape in shapes)
        first, second = made
        return first, second

    def _factor(self, rows: slice, columns: slice) -> Tensor:
        """alpha or the product of scales, in f64, for a block of C."""
        if self.scales is None:
            return torch.tensor(self.alpha, dtype=torch.float64, device=self.device)
        first, second = (scale.double() for scale in self.scales)
        return first[rows] * second[:, columns] if self.problem.scales == "scaled_rowwise" else first * second

    def _matrices(self, name: str, dtype: str, rows: int, columns: int, transposed: bool = False) -> Tensor:
        shape = (columns, rows) if transposed else (rows, columns)
        made = self._made(dtype, self.problem.batch, *shape)
        if lies := self._strides.get(name):
            made = _spread(made, lies)
        return made.mT if transposed else made

    def _made(self, name: str, *shape: int) -> Tensor:
        dtype, random = DTYPES[name], self._random
        if not dtype.is_floating_point:
            least, most = (0, 255) if dtype is torch.uint8 else (-128, 127)
            if self.problem.dtype_c == "int8":
                # Sums of larger numbers would saturate, whatever they are.
                least, most = max(least, -1), 1
            return torch.randint(least, most + 1, shape, dtype=dtype, device=self.device, generator=random)
        wide = dtype if dtype.itemsize > 1 else torch.bfloat16
        made = torch.empty(shape, dtype=wide, device=self.device).normal_(generator=random).to(dtype)
        if name == "tf32":
            made.view(torch.int32).bitwise_and_(_BELOW_TF32)
        return made


def _spread(dense: Tensor, lies: Strides) -> Tensor:
    """A copy whose lines are apart, with NaN between them."""
    batch, lines, width = dense.shape
    elements = (batch - 1) * lies.matrix + (lines - 1) * lies.line + width
    room = torch.full((elements * dense.itemsize,), 0xFF, dtype=torch.uint8, device=dense.device).view(dense.dtype)
    return room.as_strided(dense.shape, (lies.matrix, lies.line, 1)).copy_(dense)
