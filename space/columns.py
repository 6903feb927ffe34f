"""Columns: many configs of one family at once, one NumPy array per knob or derived value, computed on demand."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from space.arch import Arch
from space.devices import DeviceProfile
from space.problem import OwnProblem

T = TypeVar("T")
IntColumn = npt.NDArray[np.int64]
BoolColumn = npt.NDArray[np.bool_]
FloatColumn = npt.NDArray[np.float64]
IntTable = npt.NDArray[np.integer]


@dataclass(frozen=True, slots=True)
class Derived:
    """A value that follows from knobs.

    Attributes:
        name: ends in its unit.
        reads: knobs and derived values that it needs; enumeration computes it once they are known.
        compute: makes the column from the columns that it reads.
        in_kernel: whether the kernel's `Config` struct has it and asserts its value.
        meaning: one sentence.
    """

    name: str
    reads: tuple[str, ...]
    compute: Callable[[Columns], IntColumn]
    in_kernel: bool
    meaning: str


def kept(compute: Callable[[Columns], T]) -> Callable[[Columns], T]:
    """Decorates a function of columns: its result is computed once and cached with them."""
    return lambda c: c.once(compute)


def among(column: IntColumn, values: tuple[int, ...]) -> BoolColumn:
    """`np.isin` for non-negative numbers and a few constant values; faster for short columns."""
    return _table_of(values).take(column, mode="clip")


@lru_cache(maxsize=256)
def _table_of(values: tuple[int, ...]) -> BoolColumn:
    # The entry past the largest value stands for everything above it.
    return np.isin(np.arange(max(values) + 2), values)


class Columns:
    """Configs of one family, one row each, for one problem on one device.

    `columns["tile_m"]` is the column of a knob, `columns["threads"]` that of a derived value, computed on first use.
    Words are represented by codes (see `Knob.encode`).

    Attributes:
        shape: `(rows,)`, or `(rows, values)` for a `Grid`.
    """

    def __init__(
        self, problem: OwnProblem, device: DeviceProfile, derived: Mapping[str, Derived], places: Mapping[str, int],
        table: IntTable,
    ) -> None:  # fmt: skip
        """Columns of a table.

        Args:
            places: column of the table for each known knob.
            table: `rows x knobs`, row-major, so that picking rows copies short contiguous pieces.
        """
        self.problem = problem
        self.device = device
        self._derived = derived
        self._places = places
        self._table = table
        self._known: dict[str, IntColumn] = {}
        self._made: dict[Callable[[Columns], Any], Any] = {}
        self.shape: tuple[int, ...] = (len(table),)

    @property
    def arch(self) -> Arch:
        """The compile target of the device."""
        return self.device.arch

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, name: str) -> IntColumn:
        column = self._known.get(name)
        if column is None:
            column = self._known[name] = self._knob(name) if name in self._places else self._computed(name)
        return column

    def first(self, name: str) -> int:
        """A value of the first row, as a plain number."""
        return int(self[name][0])

    def once(self, compute: Callable[[Columns], T]) -> T:
        """`compute(self)`, computed on first use and cached; it must depend on these columns alone."""
        if compute not in self._made:
            self._made[compute] = compute(self)
        found: T = self._made[compute]
        return found

    def take(self, rows: BoolColumn | npt.NDArray[np.intp]) -> Columns:
        """The rows that a mask or an index array selects."""
        return self._with(self._table.take(np.flatnonzero(rows) if rows.dtype == np.bool_ else rows, axis=0))

    def part(self, begin: int, end: int) -> Columns:
        """Rows from `begin` up to, but not including, `end`."""
        return self._with(self._table[begin:end])

    @staticmethod
    def joined(parts: list[Columns]) -> Columns:
        """The rows of all parts, one after another; all parts are of one family, problem and device."""
        first = parts[0]
        return first._with(np.concatenate([part._table for part in parts])) if len(parts) > 1 else first

    def only(self, knobs: Collection[str]) -> Columns:
        """The same rows with only these knobs known."""
        places = {name: place for name, place in self._places.items() if name in knobs}
        return Columns(self.problem, self.device, self._derived, places, self._table)

    @property
    def knobs_read(self) -> frozenset[str]:
        """Knobs read so far, directly or by a derived value."""
        return frozenset(self._places.keys() & self._known.keys())

    def for_problem(self, problem: OwnProblem) -> Columns:
        """The same configs for another problem, with no derived values computed yet."""
        return Columns(problem, self.device, self._derived, self._places, self._table)

    def cross(self, name: str, place: int, domain: IntColumn) -> Grid:
        """Every row combined with every value of one more knob, at column `place` of the table."""
        return Grid(self, name, place, domain)

    def row(self, index: int) -> dict[str, int]:
        """The knobs of one row as plain numbers."""
        numbers = self._table[index].tolist()
        return {name: numbers[place] for name, place in self._places.items()}

    def _knob(self, name: str) -> IntColumn:
        return self._table[:, self._places[name]].astype(np.int64, copy=False)

    def _computed(self, name: str) -> IntColumn:
        column = self._derived[name].compute(self)
        return column if np.shape(column) else np.full(self.shape, column)

    def _with(self, table: IntTable) -> Columns:
        return Columns(self.problem, self.device, self._derived, self._places, table)


class Grid(Columns):
    """Rows combined with every value of one more knob, before each combination gets a row of its own.

    Columns that do not depend on the new knob have shape `(rows, 1)` and broadcast: they are computed once for all of
    its values.
    """

    def __init__(self, rows: Columns, name: str, place: int, domain: IntColumn) -> None:
        """`rows` crossed with the values of knob `name`, which is at column `place` of the table."""
        super().__init__(rows.problem, rows.device, rows._derived, rows._places, rows._table)
        self._crossed = name, place, domain
        self._known[name] = domain[None, :]
        self.shape = (len(rows), len(domain))

    def cut(self, mask: BoolColumn) -> Columns:
        """One row for each cell that a mask of the grid's shape selects."""
        name, place, domain = self._crossed
        picked = np.flatnonzero(mask)
        rows = picked // len(domain)
        table = self._table.take(rows, axis=0)
        table[:, place] = domain.take(picked - rows * len(domain))
        return Columns(self.problem, self.device, self._derived, {**self._places, name: place}, table)

    def _knob(self, name: str) -> IntColumn:
        return super()._knob(name)[:, None]
