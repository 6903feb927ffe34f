"""Bodies of requests and responses: size, time, memory, and turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
from starlette.types import Message, Receive

from api import bodies
from api.bodies import MOST_BODY_BYTES, Bodies, LimitedBody, SlowReader, discard, send_in_pieces
from api.http_errors import HttpError
from api.streams import MOST_CALLER_STREAMS, MOST_STREAMS, EventStreams


def parts(*sizes: int) -> Receive:
    left = [{"type": "http.request", "body": b"x" * size, "more_body": True} for size in sizes]

    async def receive() -> Message:
        return left.pop(0) if left else {"type": "http.request", "body": b"", "more_body": False}

    return receive


async def never() -> Message:
    await asyncio.sleep(3600)
    raise AssertionError


async def read(body: LimitedBody) -> int:
    await body.read()
    message = await body.receive()
    assert not message["more_body"]
    return len(message["body"])


def refusal_of(body: Callable[[], LimitedBody]) -> int:
    async def status() -> int:
        with pytest.raises(HttpError) as caught:
            await read(body())
        return caught.value.status_code

    return asyncio.run(status())


def test_a_body_is_counted_while_it_arrives() -> None:
    assert refusal_of(lambda: LimitedBody(Bodies(), "/", None, "a", parts(*[2**16] * 17))) == 413
    assert refusal_of(lambda: LimitedBody(Bodies(), "/", b"9" * 5000, "a", never)) == 413
    assert refusal_of(lambda: LimitedBody(Bodies(), "/", b"-1", "a", never)) == 413


def test_a_body_arrives_in_few_parts() -> None:
    assert refusal_of(lambda: LimitedBody(Bodies(), "/", None, "a", parts(*[1] * 600))) == 413

    async def slow_network() -> int:
        return await read(LimitedBody(Bodies(), "/", None, "a", parts(*[500] * 1_500)))

    assert asyncio.run(slow_network()) == 750_000


def test_a_caller_with_many_bodies_sends_them_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    held, rests = Bodies(), list[float]()

    async def sleep(seconds: float) -> None:
        rests.append(seconds)

    monkeypatch.setattr(bodies, "asyncio", SimpleNamespace(sleep=sleep))
    with ExitStack() as arriving:
        for place in range(9):
            asyncio.run(held.pace("many"))
            assert not rests, place
            arriving.enter_context(held.arriving("many"))
        asyncio.run(held.pace("other"))
        assert not rests
        asyncio.run(held.pace("many"))
        assert len(rests) == 1


def test_of_a_refused_body_few_parts_are_read() -> None:
    read_parts = 0

    async def endless() -> Message:
        nonlocal read_parts
        read_parts += 1
        return {"type": "http.request", "body": b" ", "more_body": True}

    asyncio.run(discard(endless))
    assert read_parts <= 1_024


def test_a_body_has_to_arrive_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_SECONDS", 0.01)
    assert refusal_of(lambda: LimitedBody(Bodies(), "/", None, "a", never)) == 408


def test_a_body_that_ends_early_is_refused() -> None:
    async def gone() -> Message:
        return {"type": "http.disconnect"}

    assert refusal_of(lambda: LimitedBody(Bodies(), "/", None, "a", gone)) == 400


def test_a_caller_sends_few_bodies_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MOST_ARRIVING", 2)
    held = Bodies()
    with held.arriving("a"), held.arriving("a"), held.arriving("b"):
        assert refusal_of(lambda: LimitedBody(held, "/", None, "a", parts(1))) == 429
    assert asyncio.run(_size(held)) == 1


async def _size(held: Bodies) -> int:
    return await read(LimitedBody(held, "/", None, "a", parts(1)))


def test_bodies_of_one_caller_and_of_all_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MOST_CALLER_BYTES", 100)
    monkeypatch.setattr(bodies, "MOST_HELD_BYTES", 150)
    held = Bodies()
    held.hold("a", 90)
    assert refusal_of(lambda: LimitedBody(held, "/", None, "a", parts(20))) == 429

    async def others() -> None:
        held.release("a", 110)
        body = LimitedBody(held, "/", None, "a", parts(100))
        assert await read(body) == 100
        with pytest.raises(HttpError):
            held.hold("b", 60)
        held.release("b", 60)
        body.release(200)
        held.hold("b", 60)

    asyncio.run(others())


def test_large_bodies_take_turns_with_everything_else() -> None:
    seen: list[str] = []

    async def large(held: Bodies, name: str) -> None:
        await read(LimitedBody(held, "/", None, name, parts(MOST_BODY_BYTES)))
        seen.append(name)

    async def small() -> None:
        while len(seen) < 4:
            if seen[-1:] != ["small"]:
                seen.append("small")
            await asyncio.sleep(0)

    async def all_at_once() -> None:
        held = Bodies()
        await asyncio.gather(small(), *(large(held, f"large {place}") for place in range(3)))

    asyncio.run(all_at_once())
    assert "small" in seen[1:-1]


@pytest.mark.parametrize(("barred_seconds", "caller", "least_seconds"), [(0.2, "bad", 0.2), (3600.0, "good", 0.0)])
def test_a_caller_whose_large_body_was_refused_waits_and_no_other_one(
    monkeypatch: pytest.MonkeyPatch, barred_seconds: float, caller: str, least_seconds: float
) -> None:
    monkeypatch.setattr(bodies, "_BARRED_SECONDS", barred_seconds)

    async def waited() -> float:
        held, loop = Bodies(), asyncio.get_running_loop()
        refused = LimitedBody(held, "/", None, "bad", parts(MOST_BODY_BYTES))
        await read(refused)
        began = loop.time()
        refused.release(422)
        await asyncio.wait_for(read(LimitedBody(held, "/", None, caller, parts(MOST_BODY_BYTES))), 60.0)
        return loop.time() - began

    assert asyncio.run(waited()) >= least_seconds


def test_large_answers_are_sent_in_pieces_and_a_client_that_reads_nothing_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bodies, "WRITE_SECONDS", 0.01)
    sent: list[Message] = []

    async def send(message: Message) -> None:
        if len(sent) == 3:
            await never()
        sent.append(message)

    async def answer(size: int) -> None:
        sent.clear()
        await send_in_pieces(send, {"type": "http.response.body", "body": b"x" * size})

    asyncio.run(answer(600_000))
    assert b"".join(message["body"] for message in sent) == b"x" * 600_000
    assert [message.get("more_body", False) for message in sent] == [True, True, False]
    with pytest.raises(SlowReader):
        asyncio.run(answer(1_200_000))


def test_event_streams_of_one_caller_and_of_all_have_limits() -> None:
    streams = EventStreams()
    held = [streams.opened(f"caller {place % 2}") for place in range(MOST_STREAMS)]
    assert MOST_STREAMS == 2 * MOST_CALLER_STREAMS
    for stream in held:
        stream.__enter__()
    with pytest.raises(HttpError), streams.opened("another"):
        pass
    held[0].__exit__(None, None, None)
    with pytest.raises(HttpError), streams.opened("caller 1"):
        pass
    with streams.opened("another"):
        pass
