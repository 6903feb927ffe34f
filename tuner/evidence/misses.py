"""Misses: questions without a measured answer, with their counts: what a campaign should tune."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import delete, func, select
from sqlalchemy.dialects import postgresql, sqlite

from space.errors import SpaceError
from space.kind import problem_from_key
from space.problem import Problem
from tuner.evidence.campaign_models import MissRow
from tuner.evidence.codec import utc
from tuner.evidence.models import BestRow, DeviceRow, ProblemRow
from tuner.evidence.store import Store

#: Misses that a store keeps: those asked for most often.
MOST_MISSES: Final = 20_000
_ROWS: Final = 500
#: Advisory lock of those who write on PostgreSQL: questions are added by key and dropped by count, and two writers that
#: lock rows in different orders wait for each other.
_LOCK: Final = 0x6D697373


@dataclass(frozen=True, slots=True)
class Miss:
    """A question that had no measured answer.

    Attributes:
        device: GPU model.
        count: how often it was asked.
        first_at, last_at: when it was first and last written down, some seconds after it was asked.
    """

    problem: Problem
    device: str
    count: int
    first_at: datetime
    last_at: datetime


def add(store: Store, counts: Mapping[tuple[str, str], int]) -> None:
    """Adds questions, by problem key and device, and drops those asked least beyond `MOST_MISSES`.

    Raises:
        StoreError: the store can't be written.
    """
    at = datetime.now(UTC)
    rows = [
        {"key": key, "device": device, "count": count, "first_at": at, "last_at": at}
        for (key, device), count in sorted(counts.items())
    ]
    with store.transaction(writes=True) as session:
        dialect = postgresql if session.get_bind().dialect.name == "postgresql" else sqlite
        if dialect is postgresql:
            session.execute(select(func.pg_advisory_xact_lock(_LOCK)))
        for first in range(0, len(rows), _ROWS):
            made = dialect.insert(MissRow).values(rows[first : first + _ROWS])
            changed = {"count": MissRow.count + made.excluded.count, "last_at": made.excluded.last_at}
            session.execute(made.on_conflict_do_update(index_elements=["key", "device"], set_=changed))
        beyond = (session.scalar(select(func.count(MissRow.id))) or 0) - MOST_MISSES
        if beyond > 0:
            least = select(MissRow.id).order_by(MissRow.count, MissRow.last_at, MissRow.id).limit(beyond)
            session.execute(delete(MissRow).where(MissRow.id.in_(least)))


def page(store: Store, device: str | None = None, limit: int = MOST_MISSES) -> tuple[list[Miss], int]:
    """The questions asked most often that still have no measured answer, and the number of all these.

    Raises:
        StoreError: the store can't be read.
    """
    measured = (
        select(BestRow.id)
        .join(ProblemRow, ProblemRow.id == BestRow.problem_id)
        .join(DeviceRow, DeviceRow.id == BestRow.device_id)
        .where(ProblemRow.key == MissRow.key, DeviceRow.name == MissRow.device, BestRow.served)
    )
    query = select(MissRow).where(~measured.exists())
    if device is not None:
        query = query.where(MissRow.device == device)
    with store.transaction() as session:
        total = session.scalar(select(func.count()).select_from(query.subquery())) or 0
        ordered = query.order_by(MissRow.count.desc(), MissRow.id).limit(limit)
        found = [miss for row in session.scalars(ordered) if (miss := _miss(row))]
    return found, int(total)


def _miss(row: MissRow) -> Miss | None:
    try:
        return Miss(problem_from_key(row.key), row.device, row.count, utc(row.first_at), utc(row.last_at))
    except SpaceError:
        # Written by a version that knew another kind of problem.
        return None
