"""Retention: deletes rows of ended work after a while, a few at a time; never measurements or bests."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Final, cast

from sqlalchemy import CursorResult, delete, func, select

from tuner.evidence.campaign_models import BuildRow, RoundRow, WorkerRow
from tuner.evidence.store import Store
from tuner.fleet.campaigns.clock import now

#: Rows that one transaction deletes: reports must not wait long for it.
AT_ONCE: Final = 500


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
            result = session.execute(found.execution_options(synchronize_session=False))
            deleted[f"old {kind} deleted"] = cast("CursorResult[object]", result).rowcount
    return +deleted
