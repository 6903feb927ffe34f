"""Columns: many configs of one family at once, one NumPy array a knob, derived values on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
        self,
        problem: Problem,
        arch: Arch,
        derived: Mapping[str, Derived],
        knobs: Mapping[str, npt.NDArray[np.integer]],
        known: Mapping[str, IntColumn] | None = None,
    ) -> None:
        self.problem = problem
        self.arch = arch
        self._derived = derived
        # Knobs are kept narrow: a million configs are mostly copies of them.
        self._knobs = {name: _narrow(column) for name, column in knobs.items()}
        self._known = dict(known or {})
        self.knobs = tuple(knobs)

    def __len__(self) -> int:
        return len(next(iter(self._knobs.values()))) if self._knobs else 1

    def __getitem__(self, name: str) -> IntColumn:
        if name not in self._known:
            if name in self._knobs:
                self._known[name] = self._knobs[name].astype(np.int64)
            else:
                column = self._derived[name].compute(self)
                self._known[name] = column if np.shape(column) else np.full(len(self), column)
        return self._known[name]

    def take(self, rows: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> Columns:
        """The rows that a mask or an index array picks."""
        return self._with({name: column[rows] for name, column in self._knobs.items()})

    def part(self, begin: int, end: int) -> Columns:
        """Rows from `begin` up to `end`."""
        if not self._knobs:
            return self
        return self._with({name: column[begin:end] for name, column in self._knobs.items()})

    @staticmethod
    def joined(parts: list[Columns]) -> Columns:
        """The rows of all parts, which are of one family and problem, one after another."""
        first = parts[0]
        if len(parts) == 1:
            return first
        return first._with({name: np.concatenate([part._knobs[name] for part in parts]) for name in first.knobs})

    def for_problem(self, problem: Problem) -> Columns:
        """The same knobs for another problem; derived values are computed anew."""
        return Columns(problem, self.arch, self._derived, self._knobs)

    def cross(self, name: str, domain: IntColumn, keep: Iterable[str] = ()) -> Columns:
        """Every row with every value of one more knob.

        Args:
            keep: derived values that the new knob does not change: computed now, once for each old row.
        """
        rows, values = len(self), len(domain)
        knobs = {known: np.repeat(column, values) for known, column in self._knobs.items()}
        knobs[name] = np.tile(_narrow(domain), rows)
        crossed = self._with(knobs)
        crossed._known = {kept: np.repeat(self[kept], values) for kept in keep}
        return crossed

    def row(self, index: int) -> dict[str, int]:
        """One row's knobs as plain numbers."""
        return {name: int(column[index]) for name, column in self._knobs.items()}

    def _with(self, knobs: Mapping[str, npt.NDArray[np.integer]]) -> Columns:
        return Columns(self.problem, self.arch, self._derived, knobs)


def _narrow(column: npt.NDArray[np.integer]) -> npt.NDArray[np.integer]:
    """The same numbers in 16 bits, where they fit."""
    if column.dtype == np.int16 or not len(column):
        return column
    limits = np.iinfo(np.int16)
    fits = int(column.min()) >= limits.min and int(column.max()) <= limits.max
    return column.astype(np.int16) if fits else column
