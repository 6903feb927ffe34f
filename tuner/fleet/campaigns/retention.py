"""Retention: deletes rows of ended work after a while, a few at a time; never measurements or bests."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from sqlalchemy import Row, delete, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from tuner.evidence.campaign_models import BuildRow, DeletedRounds, RoundRow, WorkerRow
from tuner.evidence.store import Store
from tuner.fleet.campaigns.clock import now

#: Rows that one transaction deletes: reports must not wait long for it.
AT_ONCE: Final = 500
_COUNTED: Final = (RoundRow.queue, RoundRow.status, RoundRow.measured, RoundRow.busy_seconds)


def delete_old(store: Store, days: float) -> Counter[str]:
    """Deletes ended rounds, silent workers and offered builds that are older than this many days.

    Returns:
        Deleted rows by kind; where it is `AT_ONCE`, more are left.

    Raises:
        StoreError: the database can't be used.
    """
    deleted = Counter[str]()
    with store.transaction(writes=True) as session:
        before = now(session) - timedelta(days=days)
        rounds = select(RoundRow.id).where(RoundRow.ended_at < before, RoundRow.status != "running")
        held = select(RoundRow.id).where(RoundRow.worker_id == WorkerRow.id).exists()
        gone = select(WorkerRow.id).where(WorkerRow.status == "gone", WorkerRow.beat_at < before, ~held)
        old = select(BuildRow.id).where(BuildRow.offered_at < before)
        # Workers after their rounds.
        chosen = (("rounds", RoundRow, rounds), ("workers", WorkerRow, gone), ("builds", BuildRow, old))
        for kind, table, query in chosen:
            # The newest row stays: SQLite would give its id to the next one, which measurements would then name.
            newest = select(func.max(table.id)).scalar_subquery()
            found = delete(table).where(table.id.in_(query.where(table.id < newest).limit(AT_ONCE)))
            found = found.execution_options(synchronize_session=False)
            rows = session.execute(found.returning(*(_COUNTED if table is RoundRow else (table.id,)))).all()
            deleted[f"old {kind} deleted"] = len(rows)
            if table is RoundRow:
                _keep_counts(session, rows)
    return +deleted


def _keep_counts(session: Session, rows: Sequence[Row[*tuple[Any, ...]]]) -> None:
    """Adds what deleted rounds had counted to `DeletedRounds`."""
    count, measured, busy_seconds = Counter[Any](), Counter[Any](), defaultdict[Any, float](float)
    for queue, status, candidates, seconds in rows:
        count[queue, status] += 1
        measured[queue, status] += candidates
        busy_seconds[queue, status] += seconds
    dialect = postgresql if session.get_bind().dialect.name == "postgresql" else sqlite
    made = dialect.insert(DeletedRounds)
    added = {name: made.excluded[name] + getattr(DeletedRounds, name) for name in ("count", "measured", "busy_seconds")}
    put = made.on_conflict_do_update(index_elements=["queue", "status"], set_=added)
    # In one order, because other services do the same.
    for of in sorted(count):
        values = {"count": count[of], "measured": measured[of], "busy_seconds": busy_seconds[of]}
        session.execute(put, {"queue": of[0], "status": of[1], **values})
