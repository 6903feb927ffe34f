"""Forest: regression trees as flat arrays, evaluated with NumPy alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

#: Rows that are walked down all trees at once: the walk's index arrays stay in cache.
_ROWS: Final = 512


@dataclass(frozen=True)
class Forest:
    """Trees one behind the other; nodes of a tree in depth-first order, so that a left child follows its parent.

    Attributes:
        roots: place of each tree's first node.
        feature: column that a node compares; -1 at a leaf.
        threshold: a row goes left when its value is not above it.
        right: place of the right child; the leaf's own place at a leaf.
        value: what a leaf predicts.
    """

    roots: npt.NDArray[np.int32]
    feature: npt.NDArray[np.int16]
    threshold: npt.NDArray[np.float32]
    right: npt.NDArray[np.int32]
    value: npt.NDArray[np.float32]

    @property
    def trees(self) -> int:
        """How many."""
        return len(self.roots)

    def predict(self, rows: Floats) -> tuple[Floats, Floats]:
        """Mean over the trees and their standard deviation, for each row."""
        mean, spread = np.empty(len(rows)), np.empty(len(rows))
        thin = np.ascontiguousarray(rows, dtype=np.float32)
        for first in range(0, len(rows), _ROWS):
            block = thin[first : first + _ROWS]
            leaves = self.value[self._leaves(block)]
            mean[first : first + _ROWS] = leaves.mean(axis=0)
            spread[first : first + _ROWS] = leaves.std(axis=0)
        return mean, spread

    def some(self, trees: int) -> Forest:
        """The first `trees` of it, which know as much of everything, less closely."""
        return replace(self, roots=self.roots[:trees])

    def _leaves(self, rows: npt.NDArray[np.float32]) -> npt.NDArray[np.int32]:
        """The leaf of each tree (first axis) that each row (second axis) ends in."""
        count = len(rows)
        node = np.repeat(self.roots, count)
        row = np.tile(np.arange(count, dtype=np.int32), self.trees) * np.int32(rows.shape[1])
        flat = rows.ravel()
        walking = np.flatnonzero(self.feature.take(node) >= 0)
        # `take` and `compress` are half as dear as brackets.
        while len(walking):
            here = node.take(walking)
            goes_left = flat.take(row.take(walking) + self.feature.take(here)) <= self.threshold.take(here)
            there = np.where(goes_left, here + np.int32(1), self.right.take(here))
            node[walking] = there
            walking = walking.compress(self.feature.take(there) >= 0)
        return node.reshape(self.trees, count)
