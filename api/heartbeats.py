"""Heartbeats: those that arrive within a moment are noted together, with one statement.

A thousand workers send two hundred a second, each with next to nothing to do: what they cost is the hops between
threads and the way to the database, and these they share.
"""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.concurrency import run_in_threadpool

from tuner.fleet.campaigns.records import HeartbeatReply
from tuner.fleet.campaigns.workers import Workers

_AT_ONCE: Final = 500
#: How long the first one waits for others. Nobody waits for the answer to a sign of life.
_GATHER_SECONDS: Final = 0.02
_Waiting = tuple[int, int | None, "asyncio.Future[HeartbeatReply]"]


class Heartbeats:
    """Takes heartbeats on one event loop."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._waiting: list[_Waiting] = []
        self._task: asyncio.Task[None] | None = None

    async def beat(self, worker_id: int, round_id: int | None) -> HeartbeatReply:
        """See `tuner.fleet.campaigns.workers.Workers.beat`."""
        answer: asyncio.Future[HeartbeatReply] = asyncio.get_running_loop().create_future()
        self._waiting.append((worker_id, round_id, answer))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work())
        return await answer

    async def _work(self) -> None:
        while self._waiting:
            await asyncio.sleep(_GATHER_SECONDS)
            part, self._waiting = self._waiting[:_AT_ONCE], self._waiting[_AT_ONCE:]
            try:
                heard = await run_in_threadpool(self._workers.beat_all, [(worker, held) for worker, held, _ in part])
            except Exception as error:
                for _, _, answer in part:
                    _tell(answer, error)
            else:
                for (_, _, answer), orders in zip(part, heard, strict=True):
                    _tell(answer, orders)


def _tell(answer: asyncio.Future[HeartbeatReply], told: HeartbeatReply | Exception) -> None:
    # Who asked may have hung up meanwhile.
    if answer.done():
        return
    if isinstance(told, Exception):
        answer.set_exception(told)
    else:
        answer.set_result(told)
