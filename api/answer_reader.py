"""Reads answers that are not in memory, those of one moment together."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TypeAlias

from starlette.concurrency import run_in_threadpool

from api.device_bests import CachedBest
from api.snapshot import Snapshot

_Waiting: TypeAlias = dict[str, asyncio.Future[CachedBest | None]]


class AnswerReader:
    """Reads answers for the event loop. While it reads, further questions wait, and are then read together."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Waiting] = defaultdict(dict)
        self._task: asyncio.Task[None] | None = None

    async def read(self, snapshot: Snapshot, key: str, device: str) -> CachedBest | None:
        """The served best of a problem; None if there is none.

        Raises:
            StoreError: the store can't be read.
        """
        waiting = self._waiting[device]
        if key not in waiting:
            waiting[key] = asyncio.get_running_loop().create_future()
        answer = waiting[key]
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._read_all(snapshot))
        # Others may wait for the same answer when this client leaves.
        return await asyncio.shield(answer)

    async def _read_all(self, snapshot: Snapshot) -> None:
        while self._waiting:
            device, waiting = self._waiting.popitem()
            try:
                found = await run_in_threadpool(snapshot.load, device, [*waiting])
            except Exception as error:
                # Every waiter must hear of a failure, even of a defect.
                for answer in waiting.values():
                    answer.set_exception(error)
            else:
                for key, answer in waiting.items():
                    answer.set_result(found.get(key))
