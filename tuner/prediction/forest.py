"""Forest: boosted regression trees as flat arrays, evaluated with NumPy alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

#: Rows that go down all trees at once; keeps the index arrays in cache.
_ROWS: Final = 512
#: Steps between removals of the rows that have reached a leaf.
_STEPS: Final = 4


@dataclass(frozen=True)
class Forest:
    """Concatenated trees, each of which corrects the sum of those before it.

    A tree's nodes are in depth-first order: a left child follows its parent.

    Attributes:
        roots: index of each tree's first node.
        feature: the column that a node compares; -1 for a leaf.
        threshold: a row with a value up to this goes left.
        right: index of the right child; a leaf's own index.
        value: a leaf's prediction.
    """

    roots: npt.NDArray[np.int32]
    feature: npt.NDArray[np.int16]
    threshold: npt.NDArray[np.float32]
    right: npt.NDArray[np.int32]
    value: npt.NDArray[np.float32]

    @property
    def trees(self) -> int:
        return len(self.roots)

    def predict(self, rows: Floats, trees: int | None = None) -> Floats:
        """Sum over the trees, one value per row.

        Args:
            trees: how many of the first trees to use, all by default. Fewer are faster and less accurate.
        """
        total = np.empty(len(rows))
        thin = np.ascontiguousarray(rows, dtype=np.float32)
        for first in range(0, len(rows), _ROWS):
            leaves = self._leaves(thin[first : first + _ROWS], self.roots[:trees])
            total[first : first + _ROWS] = self.value.take(leaves).sum(axis=0)
        return total

    def _leaves(self, rows: npt.NDArray[np.float32], roots: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Leaf indices, (trees, rows)."""
        count = len(rows)
        leaves = np.repeat(roots, count)
        row = np.tile(np.arange(count, dtype=np.int32) * np.int32(rows.shape[1]), len(roots))
        flat, nodes = rows.ravel(), self._nodes
        walking, here = np.arange(len(leaves)), leaves
        # `take` and `compress` cost half as much as indexing with brackets. A few idle steps at a leaf are cheaper than
        # a check after every step.
        while len(walking):
            for _ in range(_STEPS):
                node = nodes.take(here, axis=0)
                goes_left = flat.take(row + node[:, 0]) <= node.view(np.float32)[:, 1]
                here = np.where(goes_left, here + np.int32(1), node[:, 2])
            inner = self.feature.take(here) >= 0
            arrived = ~inner
            leaves[walking.compress(arrived)] = here.compress(arrived)
            walking, here, row = walking.compress(inner), here.compress(inner), row.compress(inner)
        return leaves.reshape(len(roots), count)

    @cached_property
    def _nodes(self) -> npt.NDArray[np.int32]:
        """(nodes, 4): feature, bits of the threshold, right child, padding. Leaves have NaN: no row goes left."""
        nodes = np.zeros((len(self.feature), 4), dtype=np.int32)
        leaf = self.feature < 0
        nodes[:, 0] = np.where(leaf, 0, self.feature)
        nodes.view(np.float32)[:, 1] = np.where(leaf, np.nan, self.threshold)
        nodes[:, 2] = self.right
        return nodes
