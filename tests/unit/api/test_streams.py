"""Event streams read the store beside everything else."""

from __future__ import annotations

import asyncio

from anyio import to_thread

from api.streams import EventStreams


def test_a_stream_reads_while_every_thread_of_the_shared_pool_is_taken() -> None:
    async def polled() -> int:
        pool = to_thread.current_default_thread_limiter()
        while pool.available_tokens:
            pool.acquire_on_behalf_of_nowait(object())
        # Without a thread of its own it would wait for ever.
        return await asyncio.wait_for(EventStreams().poll(lambda: 5), 60)

    assert asyncio.run(polled()) == 5
