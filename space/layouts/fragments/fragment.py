"""The map from threads and registers to elements, and the pattern that almost every tensor-core fragment follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from space.arch import WARP_THREADS
from space.layouts.swizzle import IntArray

REGISTER_BITS: Final = 32


@dataclass(frozen=True, slots=True, eq=False)
class Fragment:
    """(thread, element of its registers) → (matrix, row, column).

    Attributes:
        name: instruction, operand and dtype.
        source: where the layout is documented.
        rows, columns: extents of one matrix.
        element_bits: bits of one element in its register.
        row, column, matrix: arrays [threads, elements per thread]. Elements are in the order of registers and, within a
            register, of rising bits. `matrix` is 0 if there is only one.
        register_bits: 64 for f64, else 32.
    """

    name: str
    source: str
    rows: int
    columns: int
    element_bits: int
    row: IntArray
    column: IntArray
    matrix: IntArray
    register_bits: int = REGISTER_BITS

    @property
    def threads(self) -> int:
        """32 for a warp, 128 for a warpgroup."""
        return int(self.row.shape[0])

    @property
    def elements(self) -> int:
        """Elements per thread."""
        return int(self.row.shape[1])

    @property
    def matrices(self) -> int:
        """Number of matrices in the fragment."""
        return int(self.matrix.max()) + 1

    @property
    def elements_per_register(self) -> int:
        """Elements packed into one register."""
        return self.register_bits // self.element_bits

    @property
    def registers(self) -> int:
        """Registers per thread."""
        return -(-self.elements // self.elements_per_register)

    def slot(self, element: int) -> tuple[int, int]:
        """Register of a thread's element, and its lowest bit there."""
        packed = self.elements_per_register
        return element // packed, element % packed * self.element_bits

    def owners(self) -> tuple[IntArray, IntArray]:
        """Thread and element by [matrix, row, column]; -1 if no thread holds it, the last thread if several do."""
        shape = (self.matrices, self.rows, self.columns)
        thread, element = (np.full(shape, -1, dtype=np.int64) for _ in range(2))
        threads, elements = np.indices(self.row.shape)
        thread[self.matrix, self.row, self.column] = threads
        element[self.matrix, self.row, self.column] = elements
        return thread, element


def by_quads(
    threads: int, registers: int, packed: int, tall: int, *, across: bool = False
) -> tuple[IntArray, IntArray]:
    """Row and column, [threads, elements], of operands that are spread over quads of lanes.

    The four lanes of a quad share a row. Each register holds `packed` neighbours of it, so that a quad covers 4·packed
    columns. Eight quads cover 8 rows; consecutive registers first go down `tall` times 8 rows, then right to the next
    4·packed columns. Warps of a warpgroup are 16 rows apart.

    Args:
        across: exchanges rows and columns, for B, whose K runs down.
    """
    thread = np.arange(threads, dtype=np.int64)[:, None]
    register, place = np.divmod(np.arange(registers * packed, dtype=np.int64)[None, :], packed)
    lane, warp = thread % WARP_THREADS, thread // WARP_THREADS
    outer = 16 * warp + lane // 4 + 8 * (register % tall) + 0 * place
    inner = packed * (lane % 4) + place + 4 * packed * (register // tall)
    return (inner, outer) if across else (outer, inner)
