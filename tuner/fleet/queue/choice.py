"""Which queue a store has: Procrastinate on PostgreSQL, its own round table on SQLite."""

from __future__ import annotations

from tuner.evidence.store import Store
from tuner.fleet.queue.in_table import TableQueue
from tuner.fleet.queue.on_postgresql import PostgresQueue


def queue_of(store: Store, first: int | None = None) -> TableQueue:
    """The queue in the store's own database.

    Args:
        first: id of a campaign whose problems go before all others; an engine, which fetches by priority, ignores it.
    """
    return TableQueue(first) if store.embedded else PostgresQueue()
