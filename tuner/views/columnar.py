"""Columnar documents: one array per column, repeated values once.

A hundred thousand rows take a fortieth of what they take as objects, and a browser reads them in milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import orjson
from sqlalchemy.orm import Session

from space.config import Config
from space.family import family_named

Places = npt.NDArray[np.int32]
Column = dict[str, Any]

#: Ids in one `IN`.
_AT_ONCE = 20_000


def codes(values: Collection[Hashable]) -> tuple[list[Any], Places]:
    """The distinct values in the order of their first appearance, and the place of each value among them."""
    distinct = list(dict.fromkeys(values))
    places = {value: place for place, value in enumerate(distinct)}
    return distinct, np.fromiter(map(places.__getitem__, values), np.int32, len(values))


def coded(values: Iterable[Hashable]) -> Column:
    """A column of few distinct values: `values[at[row]]` is the row's."""
    values = values if isinstance(values, Sequence) else list(values)
    if values and values.count(values[0]) == len(values):
        return {"values": values[:1], "at": np.zeros(len(values), np.int32)}
    distinct, at = codes(values)
    return {"values": distinct, "at": at}


def coded_at(values: Sequence[Hashable], at: Places) -> Column:
    """The column whose rows have `values[at]`; values that no row has are left out, and equal ones become one."""
    used, among = used_of(at, len(values))
    distinct, places = codes([values[place] for place in used.tolist()])
    return {"values": distinct, "at": among if len(distinct) == len(used) else places[among]}


def used_of(at: Places, count: int) -> tuple[Places, Places]:
    """The numbers below `count` that occur, ascending, and the place of each number among them."""
    used = np.flatnonzero(np.bincount(at, minlength=count)).astype(np.int32)
    if len(used) == count:
        return used, at
    renumbered = np.zeros(count, np.int32)
    renumbered[used] = np.arange(len(used))
    return used, renumbered[at]


def loads_all(texts: Collection[str | None]) -> list[Any]:
    """Many JSON texts, parsed at once; None is null, and so is what is no JSON."""
    try:
        found: list[Any] = orjson.loads("[" + ",".join(text or "null" for text in texts) + "]")
    except orjson.JSONDecodeError:
        found = []
    return found if len(found) == len(texts) else [_parsed(text) for text in texts]


def _parsed(text: str | None) -> Any:  # noqa: ANN401  (a JSON value)
    try:
        return orjson.loads(text or "null")
    except orjson.JSONDecodeError:
        return None


def numbers(values: Sequence[Any]) -> npt.NDArray[np.float64]:
    """Values as numbers; NaN for each that is none."""
    try:
        return np.array(values, np.float64)
    except (TypeError, ValueError, OverflowError):
        plain = (value if isinstance(value, int | float) else math.nan for value in values)
        return np.fromiter(plain, np.float64, len(values))


def texts_by_id(
    session: Session, table: Literal["config", "provenance", "problem", "device"], columns: Sequence[str],
    ids: Collection[int],
) -> Iterator[tuple[Any, ...]]:  # fmt: skip
    """Id and columns, as text, of the rows with these ids. Objects of the mapped classes take ten times as long."""
    wanted = sorted(map(int, ids))
    named = ", ".join(f"CAST({column} AS TEXT)" for column in columns)
    for first in range(0, len(wanted), _AT_ONCE):
        part = ", ".join(map(str, wanted[first : first + _AT_ONCE]))
        query = f"SELECT id, {named} FROM {table} WHERE id IN ({part})"
        yield from rows_of(session.connection().exec_driver_sql(query))


def rows_of(result: Any, most: int | None = None) -> list[tuple[Any, ...]]:  # noqa: ANN401  (a CursorResult of any row)
    """All rows of a result, or the next ones, as the driver gives them: SQLAlchemy's own take longer than reading."""
    if not result.cursor:
        return []
    return list(result.cursor.fetchmany(most) if most else result.cursor.fetchall())


class Coder:
    """Numbers for values, in the order in which the values came.

    Attributes:
        places: the number of each value.
    """

    def __init__(self) -> None:
        self.places: dict[Any, int] = {}

    def add(self, values: Collection[Hashable]) -> Places:
        """The numbers of values, some of which may be new."""
        for value in dict.fromkeys(values):
            self.places.setdefault(value, len(self.places))
        return np.fromiter(map(self.places.__getitem__, values), np.int32, len(values))


class _Growing:
    """A column of few distinct values that grows by rows."""

    def __init__(self, rows: int = 0) -> None:
        self._coder = Coder()
        self._at = self._coder.add([None] * rows)

    def add(self, values: Collection[Hashable]) -> None:
        """Appends rows."""
        self._at = np.concatenate((self._at, self._coder.add(values)))

    def of(self, rows: Places) -> list[Any]:
        """The values of some rows."""
        values = list(self._coder.places)
        return [values[place] for place in self._at[rows].tolist()]

    def coded(self, rows: Places) -> Column:
        """The column of some rows."""
        return coded_at(list(self._coder.places), self._at[rows])


class Configs:
    """Configs of columnar documents, each read once."""

    def __init__(self) -> None:
        self._places: dict[int, int] = {}
        self._families = _Growing()
        self._knobs: dict[str, _Growing] = {}
        #: The document of all configs, and how many these are.
        self._whole: tuple[int, dict[str, Any]] = 0, {}

    def places(self, session: Session, ids: Sequence[int]) -> Places:
        """Places of configs, by row id; those that are new are read."""
        found = list(texts_by_id(session, "config", ("family", "knobs"), set(ids) - self._places.keys()))
        if found:
            before = len(self._places)
            self._places |= {number: before + place for place, (number, _, _) in enumerate(found)}
            self._families.add([family for _, family, _ in found])
            rows = loads_all([knobs for _, _, knobs in found])
            for name in dict.fromkeys(name for knobs in rows for name in knobs):
                self._knobs.setdefault(name, _Growing(before))
            for name, column in self._knobs.items():
                column.add([knobs.get(name) for knobs in rows])
        return np.fromiter(map(self._places.__getitem__, ids), np.int32, len(ids))

    def families(self, places: Places) -> list[str]:
        return self._families.of(places)

    def config(self, place: int) -> Config:
        """A config.

        Raises:
            SpaceError: this version has no such family, knob or value.
        """
        row = np.array([place], np.int32)
        knobs = {name: column.of(row)[0] for name, column in self._knobs.items()}
        family = family_named(self.families(row)[0])
        return family.config({name: value for name, value in knobs.items() if value is not None})

    def document(self, places: Places) -> tuple[Places, dict[str, Any]]:
        """Ids, families and knobs of the configs at `places`, each once, and the places of these in the document.

        A config whose family lacks a knob has null; a knob that no family of theirs has is left out.
        """
        used, at = used_of(places, len(self._places))
        if len(used) == len(self._places) == self._whole[0]:
            return at, self._whole[1]
        ids = np.fromiter(self._places, np.int64, len(self._places))
        knobs = {name: column.coded(used) for name, column in self._knobs.items()}
        document = {
            "id": ids[used], "family": self._families.coded(used),
            "knobs": {name: column for name, column in knobs.items() if {*column["values"]} - {None}},
        }  # fmt: skip
        if len(used) == len(self._places):
            self._whole = len(used), document
        return at, document
