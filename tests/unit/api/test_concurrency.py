"""Long calls take turns and rests, and a caller with many of them waits for itself alone."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from types import SimpleNamespace
from unittest.mock import ANY

import pytest

from api import concurrency
from api.concurrency import CallerSlots, ConcurrencyLimit, FairLimit, Rests, SharedCalls, Unwanted, Wanted


def test_a_caller_waits_for_its_own_requests_and_for_nobody_elses() -> None:
    async def run() -> None:
        slots, ended = CallerSlots(2), asyncio.Event()
        held: list[str] = []

        async def request(caller: str) -> None:
            async with slots.of(caller):
                held.append(caller)
                await ended.wait()

        tasks = [asyncio.create_task(request(caller)) for caller in ("many", "many", "many", "other")]
        while len(held) < 3:
            await asyncio.sleep(0)
        assert sorted(held) == ["many", "many", "other"]
        tasks[0].cancel()
        while len(held) < 4:
            await asyncio.sleep(0)
        assert held[3] == "many"
        ended.set()
        await asyncio.gather(*tasks[1:])

    asyncio.run(run())


def test_callers_take_turns_however_many_calls_one_has_waiting() -> None:
    async def run() -> None:
        limit, ran, go_on = FairLimit(1), list[str](), threading.Event()

        def call(name: str) -> None:
            go_on.wait()
            ran.append(name)

        tasks = [asyncio.create_task(limit.run("many", partial(call, f"many {number}"))) for number in range(5)]
        # All of them wait by now.
        await asyncio.sleep(0)
        tasks += [asyncio.create_task(limit.run(caller, partial(call, caller))) for caller in ("one", "two")]
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(*tasks)
        assert ran == ["many 0", "one", "two", *(f"many {number}" for number in range(1, 5))]

    asyncio.run(run())


def test_requests_share_the_call_that_begins_after_them() -> None:
    async def run() -> None:
        shared, begun, go_on = SharedCalls(), list[int](), asyncio.Event()

        async def call(_: Wanted) -> int:
            number = len(begun)
            begun.append(number)
            await go_on.wait()
            return number

        first = asyncio.create_task(shared.run("columns", call))
        while not begun:
            await asyncio.sleep(0)
        late = [asyncio.create_task(shared.run("columns", call)) for _ in range(3)]
        other = asyncio.create_task(shared.run("others", call))
        while len(begun) < 2:
            await asyncio.sleep(0)
        late[0].cancel()
        go_on.set()
        assert await asyncio.gather(first, *late, other, return_exceptions=True) == [0, ANY, 2, 2, 1]
        assert late[0].cancelled()
        assert begun == [0, 1, 2]

    asyncio.run(run())


def test_a_shared_call_is_wanted_until_the_last_request_leaves() -> None:
    async def run() -> None:
        shared, here, found = SharedCalls(), {"one": True, "two": True}, list[bool]()

        async def call(wanted: Wanted) -> None:
            for name in ("one", "two"):
                found.append(wanted())
                here[name] = False
            found.append(wanted())

        await asyncio.gather(*(shared.run("a", call, partial(here.__getitem__, name)) for name in here))
        assert found == [True, True, False]

    asyncio.run(run())


def test_a_call_that_nobody_wants_when_its_turn_comes_is_left_out() -> None:
    async def run() -> None:
        limit, ran = FairLimit(1), list[str]()
        with pytest.raises(Unwanted):
            await limit.run("one", lambda: ran.append("left"), lambda: False)
        await limit.run("one", lambda: ran.append("next"))
        assert ran == ["next"]

    asyncio.run(run())


def test_a_failure_reaches_every_request_that_shares_it() -> None:
    async def run() -> None:
        shared = SharedCalls()

        async def fail(_: Wanted) -> None:
            raise ValueError("no such device")

        found = await asyncio.gather(*(shared.run("a", fail) for _ in range(2)), return_exceptions=True)
        assert [str(each) for each in found] == ["no such device"] * 2

    asyncio.run(run())


def test_a_call_is_wanted_as_long_as_another_waits_for_its_slot() -> None:
    async def run() -> None:
        limit, seen, go_on = ConcurrencyLimit(1), list[bool](), threading.Event()

        def call() -> None:
            seen.append(limit.is_wanted())
            go_on.wait()
            seen.append(limit.is_wanted())

        first = asyncio.create_task(limit.run(call))
        while not seen:
            await asyncio.sleep(0.001)
        second = asyncio.create_task(limit.run(lambda: None))
        while not limit.is_wanted():
            await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(first, second)
        assert (seen, limit.is_wanted()) == ([False, True], False)

    asyncio.run(run())


@pytest.mark.parametrize(("wanted", "rests"), [(False, []), (True, [2.0, 3.0])])
def test_a_call_rests_for_as_long_as_its_part_took_if_it_is_wanted(
    monkeypatch: pytest.MonkeyPatch, wanted: bool, rests: list[float]
) -> None:
    # A rest is followed by another look at the clock.
    moments = iter([10.0, 12.0, 20.0, 23.0, 30.0] if wanted else [10.0, 12.0, 20.0])
    slept = list[float]()
    clock = SimpleNamespace(perf_counter=lambda: next(moments), sleep=slept.append)
    monkeypatch.setattr(concurrency, "time", clock)
    monkeypatch.setattr(concurrency, "_MOST_REST_SECONDS", 5.0)
    limit = ConcurrencyLimit(1)
    monkeypatch.setattr(limit, "is_wanted", lambda: wanted)
    rest = Rests(limit)
    rest()
    rest()
    assert slept == rests
