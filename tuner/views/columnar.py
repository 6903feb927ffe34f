"""Columnar documents: one array per column, repeated values once.

A hundred thousand rows take a fortieth of what they take as objects, and a browser reads them in milliseconds.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import orjson
from sqlalchemy.orm import Session

from space.config import Config
from space.registry import family_named

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
    distinct, at = codes(values if isinstance(values, Sequence) else list(values))
    return {"values": distinct, "at": at}


def coded_at(values: Sequence[Hashable], at: Places) -> Column:
    """The column whose rows have `values[at]`; values that no row has are left out, and equal ones become one."""
    used = np.flatnonzero(np.bincount(at, minlength=len(values)))
    distinct, places = codes([values[place] for place in used.tolist()])
    renumbered = np.zeros(len(values), np.int32)
    renumbered[used] = places
    return {"values": distinct, "at": renumbered[at]}


def loads_all(texts: Iterable[str | None]) -> list[Any]:
    """Many JSON texts, parsed at once; None is null."""
    found: list[Any] = orjson.loads("[" + ",".join(text or "null" for text in texts) + "]")
    return found


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


class Configs:
    """The configs of a columnar document, each once, in the order in which they came."""

    def __init__(self) -> None:
        self._places: dict[int, int] = {}
        self._families: list[str] = []
        self._knobs: dict[str, list[Any]] = {}

    def places(self, session: Session, ids: Sequence[int]) -> Places:
        """Places of configs in the document, by row id; those that are new are read."""
        found = list(texts_by_id(session, "config", ("family", "knobs"), set(ids) - self._places.keys()))
        if found:
            before = len(self._families)
            self._places |= {number: before + place for place, (number, _, _) in enumerate(found)}
            self._families += [family for _, family, _ in found]
            rows = loads_all(knobs for _, _, knobs in found)
            for name in dict.fromkeys(name for knobs in rows for name in knobs):
                self._knobs.setdefault(name, [None] * before)
            for name, values in self._knobs.items():
                values += [knobs.get(name) for knobs in rows]
        return np.fromiter(map(self._places.__getitem__, ids), np.int32, len(ids))

    def family(self, place: int) -> str:
        """A config's family."""
        return self._families[place]

    def config(self, place: int) -> Config:
        """A config.

        Raises:
            SpaceError: this version has no such family, knob or value.
        """
        knobs = {name: values[place] for name, values in self._knobs.items() if values[place] is not None}
        return family_named(self._families[place]).config(knobs)

    def document(self) -> dict[str, Any]:
        """Ids, families and knobs; a family that lacks a knob has null."""
        return {
            "id": list(self._places), "family": coded(self._families),
            "knobs": {name: coded(values) for name, values in self._knobs.items()},
        }  # fmt: skip
