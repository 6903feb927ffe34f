"""Attribution: how much of what a block wins lies in the replaced product's own kernels, and how much in all others.

The others are the same in both graphs, but not always as fast: a library's kernel that reads 235 MB took 57 or 61 µs,
depending on what ran before it in the block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from benchmarks.model.machines import KernelTime


@dataclass(frozen=True, slots=True)
class Attributed:
    """Kernel times of two graphs, one with a product replaced.

    Attributes:
        torch_us, ours_us: of the kernels that only one of them has: the product's.
        others_us: how much less time those take that both have.
    """

    torch_us: float
    ours_us: float
    others_us: float

    def of_one(self, layers: int) -> Attributed:
        """The same for one of some equal blocks."""
        return Attributed(self.torch_us / layers, self.ours_us / layers, self.others_us / layers)


def attributed(theirs: Sequence[KernelTime], ours: Sequence[KernelTime]) -> Attributed:
    """Tells the kernels of two graphs apart by their names, in order."""
    names = SequenceMatcher(None, [one.name for one in theirs], [one.name for one in ours], autojunk=False)
    torch_us = ours_us = others_us = 0.0
    for kind, first, last, begin, end in names.get_opcodes():
        before, after = (sum(one.us for one in part) for part in (theirs[first:last], ours[begin:end]))
        if kind == "equal":
            others_us += before - after
        else:
            torch_us, ours_us = torch_us + before, ours_us + after
    return Attributed(torch_us, ours_us, others_us)
