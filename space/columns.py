"""Columns: many configs of one family at once, one NumPy array a knob, derived values on demand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from space.arch import Arch
from space.problem import Problem

IntColumn = npt.NDArray[np.int64]
BoolColumn = npt.NDArray[np.bool_]
FloatColumn = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Derived:
    """A value that follows from knobs; computed, never free.

    Attributes:
        name: with its unit.
        reads: knobs and derived values it needs, so that enumeration knows when it can be computed.
        compute: the column from the columns read.
        in_kernel: whether the kernel's `Config` struct has it, and asserts that it agrees.
        meaning: one sentence.
    """

    name: str
    reads: tuple[str, ...]
    compute: Callable[[Columns], IntColumn]
    in_kernel: bool
    meaning: str


class Columns:
    """Knob columns of equal length, for one problem on one arch.

    `columns["tile_m"]` is a knob's column, `columns["smem_bytes"]` a derived one, computed on first use.
    Words stand as their codes (see `Knob.encode`).
    """

    def __init__(
        self, problem: Problem, arch: Arch, derived: Mapping[str, Derived], knobs: Mapping[str, IntColumn]
    ) -> None:
        self.problem = problem
        self.arch = arch
        self._derived = derived
        self._columns = dict(knobs)
        self.knobs = tuple(knobs)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()))) if self._columns else 1

    def __getitem__(self, name: str) -> IntColumn:
        if name not in self._columns:
            self._columns[name] = np.broadcast_to(self._derived[name].compute(self), (len(self),))
        return self._columns[name]

    def take(self, rows: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> Columns:
        """The rows that a mask or an index array picks."""
        picked = {name: self._columns[name][rows] for name in self.knobs}
        return Columns(self.problem, self.arch, self._derived, picked)

    def cross(self, name: str, domain: IntColumn) -> Columns:
        """Every row with every value of one more knob."""
        rows = len(self)
        knobs = {known: np.repeat(self._columns[known], len(domain)) for known in self.knobs}
        knobs[name] = np.tile(domain, rows)
        return Columns(self.problem, self.arch, self._derived, knobs)

    def row(self, index: int) -> dict[str, int]:
        """One row's knobs as plain numbers."""
        return {name: int(self._columns[name][index]) for name in self.knobs}
