"""Turns of callers on the event loop: who waits, in which order, and for how many turns."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from api.limits import RateLimiter
from api.turns import MOST_OF_A_CALLER, Turns


def begun(turns: Turns, callers: list[str]) -> list[tuple[str, int, int]]:
    """The requests in the order in which they begin: caller, place among `callers`, and turn of the event loop."""
    order: list[tuple[str, int, int]] = []

    async def run() -> None:
        loop, turn = asyncio.get_running_loop(), 0

        def count() -> None:
            nonlocal turn
            turn += 1
            loop.call_soon(count)

        async def request(place: int) -> None:
            # All at one moment: a caller that has been alone for a second takes no turns.
            if (waiting := turns.begin(callers[place], 0.0)) is not None:
                await waiting
            order.append((callers[place], place, turn))

        loop.call_soon(count)
        await asyncio.gather(*map(request, range(len(callers))))

    asyncio.run(run())
    return order


def test_a_caller_with_many_requests_takes_turns_and_the_others_do_not_wait() -> None:
    order = begun(Turns(lambda caller: False), ["other", *["many"] * 50, "other"])
    assert Counter(caller for caller, _, _ in order) == {"many": 50, "other": 2}
    assert [place for caller, place, _ in order if caller == "many"] == [*range(1, 51)]
    of_turns = [*Counter(turn for caller, _, turn in order if caller == "many").values()]
    # A few at once, one a turn while more than a few wait, and the last few at once.
    assert of_turns == [MOST_OF_A_CALLER, *[1] * (50 - 2 * MOST_OF_A_CALLER), MOST_OF_A_CALLER]
    assert order.index(("other", 51, order[0][2])) <= MOST_OF_A_CALLER + 1


def test_a_caller_that_is_alone_takes_no_turns() -> None:
    async def run() -> None:
        turns, now = Turns(lambda caller: True), time.perf_counter()
        first = turns.begin("one", now - 60.0)
        assert first is not None  # others may have asked just before
        await first
        assert [turns.begin("one", now) for _ in range(50)] == [None] * 50
        assert turns.begin("another", now) is not None

    asyncio.run(run())


def test_a_caller_that_hurries_waits_and_is_served_in_the_end() -> None:
    order = begun(Turns(lambda caller: caller == "hurried"), [*["hurried"] * 20, *["other"] * 3])
    assert [caller for caller, _, _ in order[:3]] == ["other"] * 3
    assert [place for caller, place, _ in order if caller == "hurried"] == [*range(20)]


def test_a_request_whose_client_left_does_not_take_a_turn() -> None:
    async def run() -> None:
        turns = Turns(lambda caller: True)
        first, second = (turns.begin("hurried", time.perf_counter()) for _ in range(2))
        assert first is not None
        assert second is not None
        first.cancel()
        await asyncio.wait_for(second, 30.0)

    asyncio.run(run())


def test_a_caller_hurries_when_it_has_used_a_part_of_its_burst() -> None:
    now = 0.0
    limiter = RateLimiter(100.0, lambda: now)
    for _ in range(6):
        limiter.wait_seconds("caller")
    assert not limiter.hurries("caller")
    limiter.wait_seconds("caller")
    assert limiter.hurries("caller")
    assert not limiter.hurries("another")
    now = 1.0
    assert not limiter.hurries("caller")
    assert not RateLimiter(0.0).hurries("caller")
