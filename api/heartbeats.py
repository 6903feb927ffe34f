"""Heartbeat batching: heartbeats that arrive within 20 ms are stored with one SQL statement.

A thousand workers send two hundred heartbeats per second. Each does next to nothing; its cost is the thread switch and
the database round trip, which a batch pays once.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from api.concurrency import ConcurrencyLimit
from tuner.fleet.campaigns.records import HeartbeatReply
from tuner.fleet.campaigns.workers import Beat, Workers

_MOST_OF_A_BATCH: Final = 500
#: The first heartbeat of a batch waits this long for others; nothing depends on a fast reply.
_BATCH_SECONDS: Final = 0.02
_Waiting = tuple[Beat, "asyncio.Future[HeartbeatReply]"]


class HeartbeatBatcher:
    """Collects heartbeats on one event loop."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._waiting: list[_Waiting] = []
        self._task: asyncio.Task[None] | None = None
        # A thread of its own: workers that are not heard lose their rounds, however busy the shared pool is.
        self._limit = ConcurrencyLimit(1)

    async def beat(self, beat: Beat) -> HeartbeatReply:
        """Stores a heartbeat with the next batch and returns the orders for its worker.

        Raises:
            WorkerGone: the worker counts as gone, or is not the token's.
            StoreError: the batch could not be stored.
        """
        reply: asyncio.Future[HeartbeatReply] = asyncio.get_running_loop().create_future()
        self._waiting.append((beat, reply))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._store_batches())
        return await reply

    async def _store_batches(self) -> None:
        while self._waiting:
            await asyncio.sleep(_BATCH_SECONDS)
            batch, self._waiting = self._waiting[:_MOST_OF_A_BATCH], self._waiting[_MOST_OF_A_BATCH:]
            try:
                results = await self._limit.run(partial(self._workers.beat_all, [beat for beat, _ in batch]))
            except Exception as error:
                for _, reply in batch:
                    _resolve(reply, error)
            else:
                for (_, reply), orders in zip(batch, results, strict=True):
                    _resolve(reply, orders)


def _resolve(reply: asyncio.Future[HeartbeatReply], result: HeartbeatReply | Exception) -> None:
    # The client may have disconnected in the meantime.
    if reply.done():
        return
    if isinstance(result, Exception):
        reply.set_exception(result)
    else:
        reply.set_result(result)
