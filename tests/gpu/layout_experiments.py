"""Experiments that show which thread holds which element. Each returns the maps' prediction and the observation.

One operand holds numbers that encode their own positions, the other has ones on a diagonal, so the product shows
where the hardware used each position. Numbers are sent digit by digit, because fp8 and int4 represent few of them
exactly.

An `mma.sync` cannot distinguish a fragment from one with the same relabelling of rows (or columns, or k) in all
operands, because the two are equivalent. wgmma and ldmatrix use addresses, so their labels are absolute.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from space.elements import element_bytes
from space.instructions.wgmma import M, Wgmma
from space.layouts.fragments.mma_sync import Shape, mma_fragment
from space.layouts.fragments.wgmma import wgmma_fragment
from space.layouts.operand import OperandTile
from space.layouts.swizzle import SWIZZLES, IntArray
from tests.gpu.layout_words import (
    base_of,
    codes_of,
    digits,
    gather,
    image_words,
    number,
    register_values,
    register_words,
    spread,
)

#: Operand words [batch, 32, words] of A and B → accumulator words [batch, 32, words].
RunMma = Callable[[np.ndarray, np.ndarray], np.ndarray]
#: Images [batch, words], descriptors of A and B, words of A [batch, 128, 4] or None → [batch, 128, words].
RunWgmma = Callable[[np.ndarray, int, int, np.ndarray | None], np.ndarray]
#: Prediction of the maps and observation on the hardware.
Seen = tuple[IntArray, IntArray]


class MmaSync:
    """Experiments with one `mma.sync`; A and B of one dtype."""

    def __init__(self, run: RunMma, shape: Shape, dtype: str, accumulator: str, a_col: bool, b_col: bool) -> None:
        self._run, self._shape, self._dtype, self._accumulator = run, shape, dtype, accumulator
        self._a, self._b = mma_fragment(shape, "A", dtype, a_col), mma_fragment(shape, "B", dtype, b_col)
        self._d = mma_fragment(shape, "D", accumulator)
        self._base = base_of(dtype)

    def accumulator(self) -> Seen:
        """Matrix, row and column of each (thread, element) of D."""
        (m, n, k), d = self._shape, self._d
        rows = d.matrices * m
        row_of = np.arange(rows, dtype=np.int64).reshape(d.matrices, m)
        one_a, one_b = np.zeros((d.matrices, m, k), np.int64), np.zeros((d.matrices, k, n), np.int64)
        one_a[:, :, 0] = one_b[:, 0, :] = 1
        by_row = [(one_a * part[:, :, None], one_b) for part in digits(row_of, self._base, rows - 1)]
        by_column = [(one_a, one_b * part) for part in digits(np.arange(n), self._base, n - 1)]
        seen = self._multiply([(spread(self._a, a), spread(self._b, b)) for a, b in by_row + by_column])
        row, column = (number(list(part), self._base) for part in (seen[: len(by_row)], seen[len(by_row) :]))
        return d.matrix * m * n + d.row * n + d.column, row * n + column

    def operand_a(self) -> Seen:
        """(thread, element) that holds each element of A [matrix, m, k]."""
        (_, n, k), a = self._shape, self._a
        parts = digits(codes_of(a), self._base, codes_of(a).size - 1)
        chunks = range(0, k, n)
        diagonals = [np.eye(k, n, -first, dtype=np.int64) for first in chunks]
        seen = self._multiply([(part, spread(self._b, one)) for one in diagonals for part in parts])
        product = gather(self._d, seen).reshape(len(chunks), len(parts), *gather(self._d, seen).shape[1:])
        found = [number(list(chunk), self._base) for chunk in product]
        return gather(a, codes_of(a)), np.concatenate(found, axis=2)[:, :, :k]

    def operand_b(self) -> Seen:
        """(thread, element) that holds each element of B [matrix, k, n]."""
        (m, _, k), b = self._shape, self._b
        parts = digits(codes_of(b), self._base, codes_of(b).size - 1)
        chunks = range(0, k, m)
        diagonals = [np.eye(m, k, first, dtype=np.int64) for first in chunks]
        seen = self._multiply([(spread(self._a, one), part) for one in diagonals for part in parts])
        product = gather(self._d, seen).reshape(len(chunks), len(parts), *gather(self._d, seen).shape[1:])
        found = [number(list(chunk), self._base) for chunk in product]
        return gather(b, codes_of(b)), np.concatenate(found, axis=1)[:, :k, :]

    def _multiply(self, pairs: list[tuple[IntArray, IntArray]]) -> IntArray:
        """Products of operands by thread and element, as D by thread and element."""
        a = np.stack([register_words(self._a, each, self._dtype) for each, _ in pairs])
        b = np.stack([register_words(self._b, each, self._dtype) for _, each in pairs])
        return register_values(self._d, self._run(a, b), self._accumulator)


class Region:
    """An operand tile at a place of an image of shared memory; `put` fills it."""

    def __init__(self, tile: OperandTile, dtype: str, at_bytes: int) -> None:
        self.tile, self.at_bytes, self.size = tile, at_bytes, element_bytes(dtype)
        self.elements = tile.plan.smem_bytes // self.size
        mn, k = np.indices((tile.mn, tile.k), dtype=np.int64)
        #: Place of each element [mn, k] among the region's elements.
        self.places = tile.offset(mn, k) // self.size

    @property
    def end_bytes(self) -> int:
        """First possible start of the next region."""
        return -(-(self.at_bytes + self.tile.plan.smem_bytes) // 1024) * 1024

    def put(self, image: IntArray, matrix: IntArray) -> None:
        """A matrix [mn, k] at the offsets that TMA would use."""
        first = self.at_bytes // self.size
        image[first + self.places] = matrix

    def put_places(self, image: IntArray, part: IntArray) -> None:
        """Numbers that encode positions in any layout."""
        first = self.at_bytes // self.size
        image[first : first + self.elements] = part


class WgmmaExperiment:
    """Experiments with one `wgmma`."""

    def __init__(self, run: RunWgmma, row: Wgmma, n: int) -> None:
        self._run, self._row, self._n = run, row, n
        self._d = wgmma_fragment(n, row.k, "D", row.dtype_acc)

    def accumulator(self) -> Seen:
        """Row and column of each (thread, element) of D."""
        row, n, d = self._row, self._n, self._d
        a, b = self._plain(M, row.dtype_a, 0), self._plain(n, row.dtype_b, self._plain(M, row.dtype_a, 0).end_bytes)
        by_row = [(part, np.ones(n, np.int64)) for part in digits(np.arange(M), 8, M - 1)]
        by_column = [(np.ones(M, np.int64), part) for part in digits(np.arange(n), 8, n - 1)]
        images = []
        for rows, columns in by_row + by_column:
            image = np.zeros(b.end_bytes // a.size, np.int64)
            a.put(image, np.pad(rows[:, None], ((0, 0), (0, row.k - 1))))
            b.put(image, np.pad(columns[:, None], ((0, 0), (0, row.k - 1))))
            images.append(self._image(image, a, b))
        seen = self._multiply(images, a, b)
        found, across = (number(list(part), 8) for part in (seen[: len(by_row)], seen[len(by_row) :]))
        return d.row * n + d.column, found * n + across

    def operand_a(self) -> Seen:
        """(thread, element) that holds each element of A [64, k] in registers; N must be at least K."""
        row = self._row
        fragment = wgmma_fragment(self._n, row.k, "A", row.dtype_a)
        b = self._plain(self._n, row.dtype_b, 0)
        image = np.zeros(b.end_bytes // b.size, np.int64)
        b.put(image, np.eye(self._n, row.k, dtype=np.int64))
        parts = digits(codes_of(fragment), 8, codes_of(fragment).size - 1)
        words = np.stack([register_words(fragment, part, row.dtype_a) for part in parts])
        seen = self._multiply([image_words(image, b.size, row.dtype_b)] * len(parts), None, b, words)
        product = gather(self._d, seen)[:, 0, :, : row.k]
        return gather(fragment, codes_of(fragment))[0], number(list(product), 8)

    def places_of_b(self, tile: OperandTile, mn: int, k: int) -> Seen:
        """Place in shared memory of each element [n, k] of B's block that begins at (mn, k) of a tile."""
        row = self._row
        fragment = wgmma_fragment(self._n, row.k, "A", row.dtype_a)
        diagonal = register_words(fragment, spread(fragment, np.eye(M, row.k, dtype=np.int64)), row.dtype_a)
        b = Region(tile, row.dtype_b, 0)
        images = []
        for part in digits(np.arange(b.elements, dtype=np.int64), 8, b.elements - 1):
            image = np.zeros(b.end_bytes // b.size, np.int64)
            b.put_places(image, part)
            images.append(image_words(image, b.size, row.dtype_b))
        seen = self._multiply(images, None, b, np.stack([diagonal] * len(images)), at_b=(mn, k))
        product = gather(self._d, seen)[:, 0, : row.k, :]
        return b.places[mn : mn + self._n, k : k + row.k], number(list(product), 8).T

    def places_of_a(self, tile: OperandTile, mn: int, k: int) -> Seen:
        """Place in shared memory of each element [64, k] of A's block; N must be at least K."""
        row = self._row
        a = Region(tile, row.dtype_a, 0)
        b = self._plain(self._n, row.dtype_b, a.end_bytes)
        images = []
        for part in digits(np.arange(a.elements, dtype=np.int64), 8, a.elements - 1):
            image = np.zeros(b.end_bytes // a.size, np.int64)
            a.put_places(image, part)
            b.put(image, np.eye(self._n, row.k, dtype=np.int64))
            images.append(self._image(image, a, b))
        seen = self._multiply(images, a, b, at_a=(mn, k))
        product = gather(self._d, seen)[:, 0, :, : row.k]
        return a.places[mn : mn + M, k : k + row.k], number(list(product), 8)

    def _plain(self, mn: int, dtype: str, at_bytes: int) -> Region:
        """One instruction's operand as 32-byte rows: 32 bytes of K are one span of the 32B swizzle."""
        return Region(OperandTile(mn, self._row.k, dtype, "k", SWIZZLES["32B"]), dtype, at_bytes)

    def _image(self, image: IntArray, a: Region, b: Region) -> np.ndarray:
        """Both operands as words; their dtypes may differ (e4m3 and e5m2), their sizes may not."""
        split = b.at_bytes // b.size
        parts = (image[:split], a.size, self._row.dtype_a), (image[split:], b.size, self._row.dtype_b)
        return np.concatenate([image_words(*part) for part in parts])

    def _multiply(
        self,
        images: list[np.ndarray],
        a: Region | None,
        b: Region,
        words: np.ndarray | None = None,
        at_a: tuple[int, int] = (0, 0),
        at_b: tuple[int, int] = (0, 0),
    ) -> IntArray:
        # A region's start is aligned to every pattern, so that descriptors of it start there.
        of_a = a.tile.wgmma_descriptor(a.at_bytes, *at_a).encode() if a else 0
        of_b = b.tile.wgmma_descriptor(b.at_bytes, *at_b).encode()
        return register_values(self._d, self._run(np.stack(images), of_a, of_b, words), self._row.dtype_acc)
