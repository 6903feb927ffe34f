"""Which queue a store has: Procrastinate on PostgreSQL, its own round table on SQLite."""

from __future__ import annotations

from tuner.evidence.store import Store
from tuner.fleet.queue.in_table import TableQueue
from tuner.fleet.queue.on_postgresql import PostgresQueue


def queue_of(store: Store) -> TableQueue:
    """The queue in the store's own database."""
    return TableQueue() if store.embedded else PostgresQueue()
