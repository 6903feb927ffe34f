"""A client that leaves is noticed, and one whose body nobody reads is not drained."""

from __future__ import annotations

import asyncio

import pytest
from fastapi import Request
from starlette.types import Message

from api.clients import watched
from api.concurrency import Unwanted
from api.http_errors import HttpError

ASKED: Message = {"type": "http.request", "body": b""}
PART: Message = {"type": "http.request", "body": b"1", "more_body": True}
LEFT: Message = {"type": "http.disconnect"}


@pytest.mark.parametrize(
    ("messages", "wanted", "unread"),
    [([], True, 0), ([ASKED], True, 0), ([ASKED, LEFT], False, 0), ([LEFT], False, 0), ([PART, PART, LEFT], True, 2)],
)
def test_a_client_is_wanted_until_it_leaves(messages: list[Message], wanted: bool, unread: int) -> None:
    async def run() -> None:
        waiting = asyncio.Queue[Message]()
        for message in messages:
            waiting.put_nowait(message)
        async with watched(Request({"type": "http"}, waiting.get)) as is_wanted:
            for _ in range(10):
                await asyncio.sleep(0)
            assert (is_wanted(), waiting.qsize()) == (wanted, unread)
        # Nobody takes what comes later from whoever answers.
        waiting.put_nowait(LEFT)
        await asyncio.sleep(0)
        assert waiting.qsize() == unread + 1

    asyncio.run(run())


def test_a_call_that_was_left_out_ends_its_request() -> None:
    async def run() -> None:
        async with watched(Request({"type": "http"}, asyncio.Queue[Message]().get)):
            raise Unwanted

    with pytest.raises(HttpError) as ended:
        asyncio.run(run())
    assert (ended.value.status_code, ended.value.kind) == (499, "client-left")
