"""Rows identified by their content: found, or inserted if missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

from sqlalchemy import select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from tuner.evidence.models import Base, ConfigRow, DeviceRow, ProblemRow, ProvenanceRow

Named = type[ProblemRow] | type[DeviceRow] | type[ConfigRow] | type[ProvenanceRow]
Keyed = type[ProblemRow] | type[ConfigRow]
T = TypeVar("T")

#: Rows per statement, below every driver's limit on parameters.
_ROWS_A_STATEMENT: Final = 1_000


def id_of(session: Session, kind: Named, values: Mapping[str, Any], unique: Sequence[str] | None = None) -> int:
    """The id of the row with these values, inserted if missing. Safe if another process inserts it first.

    Args:
        unique: columns that identify the row; all of `values` by default.
    """
    named = {name: values[name] for name in unique or values}
    found = session.scalars(select(kind.id).filter_by(**named)).one_or_none()
    if found is not None:
        return found
    insert_new(session, kind, [values])
    return session.scalars(select(kind.id).filter_by(**named)).one()


def ids_by_key(session: Session, kind: Keyed, rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """The ids of many rows by their key; missing rows are inserted."""
    wanted = {str(row["key"]): row for row in rows}
    found = _known(session, kind, wanted)
    # All writers insert in one order, so two of them with the same new rows never deadlock.
    missing = sorted(wanted.keys() - found.keys())
    for part in _parts(missing):
        made = _insert_new(session, kind).returning(kind.key, kind.id)
        found |= {key: place for key, place in session.execute(made, [dict(wanted[key]) for key in part])}
    # Inserted by another process in between.
    if late := wanted.keys() - found.keys():
        found |= _known(session, kind, late)
    return found


def insert_new(session: Session, kind: type[Base], rows: Sequence[Mapping[str, Any]]) -> None:
    """Inserts rows, skipping those that a unique constraint already has."""
    for part in _parts(rows):
        session.execute(_insert_new(session, kind), [dict(row) for row in part])


def _insert_new(session: Session, kind: type[Base]) -> sqlite.Insert | postgresql.Insert:
    if session.get_bind().dialect.name == "postgresql":
        return postgresql.insert(kind).on_conflict_do_nothing()
    return sqlite.insert(kind).on_conflict_do_nothing()


def _known(session: Session, kind: Keyed, keys: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in _parts(keys):
        found |= {key: place for key, place in session.execute(select(kind.key, kind.id).where(kind.key.in_(part)))}
    return found


def _parts(items: Iterable[T]) -> Iterator[list[T]]:
    left = iter(items)
    while part := list(islice(left, _ROWS_A_STATEMENT)):
        yield part
