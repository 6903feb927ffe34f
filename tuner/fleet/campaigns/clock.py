"""The fleet's one clock: the database's, so that clocks of workers and of several services are never compared."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import ColumnElement, DateTime, bindparam, func, select
from sqlalchemy.orm import Session


def now(session: Session) -> datetime:
    """The time by the database's clock; on SQLite, by this machine's."""
    if session.get_bind().dialect.name == "postgresql":
        moment = session.scalar(select(func.clock_timestamp()))
        if isinstance(moment, datetime):
            return moment
    return datetime.now(UTC)


def sql_now(dialect: str) -> ColumnElement[datetime]:
    """The same time as an expression inside a statement, which saves a round trip."""
    if dialect == "postgresql":
        return func.clock_timestamp(type_=DateTime(timezone=True))
    return bindparam(None, callable_=lambda: datetime.now(UTC), type_=DateTime(timezone=True))
