"""Heartbeats that arrive within a moment share one statement, and each gets its own worker's orders."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest
from anyio import to_thread

from api.heartbeats import HeartbeatBatcher
from tuner.errors import WorkerGone
from tuner.fleet.campaigns.records import HeartbeatReply
from tuner.fleet.campaigns.workers import Beat, Workers


class FakeWorkers:
    """Records heartbeats; worker 3 is gone, worker 5 should stop."""

    def __init__(self) -> None:
        self.notes = list[list[Beat]]()

    def beat_all(self, beats: Sequence[Beat]) -> list[HeartbeatReply | WorkerGone]:
        self.notes.append(list(beats))
        return [WorkerGone("gone") if beat[0] == 3 else HeartbeatReply(beat[0] == 5, drain=False) for beat in beats]


def test_beats_of_one_moment_are_one_note() -> None:
    workers = FakeWorkers()

    async def all_at_once() -> list[HeartbeatReply | BaseException]:
        heartbeats = HeartbeatBatcher(cast(Workers, workers))
        return await asyncio.gather(*(heartbeats.beat((n, 10 * n, n + 7)) for n in range(1, 7)), return_exceptions=True)

    answers = asyncio.run(all_at_once())
    assert workers.notes == [[(n, 10 * n, n + 7) for n in range(1, 7)]]
    assert isinstance(answers.pop(2), WorkerGone)
    assert answers == [HeartbeatReply(n == 5, drain=False) for n in (1, 2, 4, 5, 6)]


def test_who_hangs_up_takes_nobody_else_along() -> None:
    workers = FakeWorkers()

    async def one_hangs_up() -> HeartbeatReply:
        heartbeats = HeartbeatBatcher(cast(Workers, workers))
        leaving, staying = (asyncio.create_task(heartbeats.beat((n, None, None))) for n in (1, 5))
        await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        return await staying

    assert asyncio.run(one_hangs_up()).stop
    assert workers.notes == [[(1, None, None), (5, None, None)]]


def test_beats_are_stored_while_every_thread_of_the_shared_pool_is_taken() -> None:
    async def beat() -> HeartbeatReply:
        pool = to_thread.current_default_thread_limiter()
        while pool.available_tokens:
            pool.acquire_on_behalf_of_nowait(object())
        # Without a thread of its own it would wait for ever.
        return await asyncio.wait_for(HeartbeatBatcher(cast(Workers, FakeWorkers())).beat((5, None, None)), 60)

    assert asyncio.run(beat()).stop
