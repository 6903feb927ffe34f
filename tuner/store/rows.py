"""Rows that are named by their content: found, or made when they are not there yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from tuner.store.models import ConfigRow, DeviceRow, ProblemRow, ProvenanceRow

Named = type[ProblemRow] | type[DeviceRow] | type[ConfigRow] | type[ProvenanceRow]


def id_of(session: Session, kind: Named, values: Mapping[str, Any], unique: Sequence[str] | None = None) -> int:
    """The id of the row with these values; made if missing. Safe when another process makes it first.

    Args:
        unique: columns that name the row; all of `values` by default.
    """
    named = {name: values[name] for name in unique or values}
    found = session.scalars(select(kind.id).filter_by(**named)).one_or_none()
    if found is not None:
        return found
    dialect = postgresql if session.get_bind().dialect.name == "postgresql" else sqlite
    session.execute(dialect.insert(kind).values(**values).on_conflict_do_nothing())
    return session.scalars(select(kind.id).filter_by(**named)).one()
