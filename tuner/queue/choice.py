"""Which queue a store has: the engine on PostgreSQL, the rounds themselves on SQLite."""

from __future__ import annotations

from tuner.queue.in_table import TableQueue
from tuner.queue.on_postgresql import PostgresQueue
from tuner.queue.port import Queue
from tuner.store.store import Store


def queue_of(store: Store) -> Queue:
    """The queue on the store's own database."""
    return TableQueue() if store.embedded else PostgresQueue()
