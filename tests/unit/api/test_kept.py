"""Kept views are made once per version, and take no more memory than they may."""

from __future__ import annotations

import asyncio
import threading
import tracemalloc
from pathlib import Path

from fastapi import Request, Response
from starlette.types import Message

from api.encoding import LEAST_BYTES, Rendered
from api.http_errors import HttpError
from api.views.kept import Kept, Views
from tuner.evidence.store import Store

NONE = {"rows": 0}
LARGE = {"text": "".join(map(chr, range(32, 126))) * (LEAST_BYTES // 50)}


def test_a_view_is_made_once_per_version() -> None:
    kept, made = Kept(), list[int]()
    for version in (1, 1, 2, 2, 1):
        kept.get("view", version, lambda version=version: made.append(version))
    assert made == [1, 2, 1]


def test_the_least_recently_used_are_dropped() -> None:
    kept = Kept(most_bytes=3_500)
    for key in "abcadab":
        kept.get(key, 0, lambda: NONE)
    assert [*kept._held] == ["d", "a", "b"]


def test_encodings_count_that_came_later() -> None:
    kept = Kept()
    view = kept.get("view", 0, lambda: LARGE)
    before = kept._bytes
    view.response(Request({"type": "http", "headers": [(b"accept-encoding", b"gzip")]}))
    kept.get("view", 0, lambda: LARGE)
    assert kept._bytes > before


def test_small_views_take_no_more_than_is_counted() -> None:
    tracemalloc.start()
    kept = Kept(most_bytes=2**20)
    for key in range(2_000):
        kept.get(key, 0, lambda: NONE)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < 2**21


def test_slow_views_are_made_in_turns_of_callers_who_share_none_with_others(tmp_path: Path) -> None:
    async def run(store: Store) -> None:
        views, made, go_on = Views(store), list[tuple[str, int]](), threading.Event()

        def ask(caller: str, number: int) -> asyncio.Task[Response]:
            def make() -> Rendered:
                go_on.wait()
                made.append((caller, number))
                return Rendered.of(NONE)

            return asyncio.create_task(views.answer(request_of(caller), number, make, slow=True))

        tasks = [ask("many", number) for number in range(4)]
        await turns()
        # It would wait for all of the other caller's if it shared the last of them.
        tasks.append(ask("one", 3))
        await turns()
        go_on.set()
        await asyncio.gather(*tasks)
        assert made == [("many", 0), ("one", 3), ("many", 1), ("many", 2), ("many", 3)]

    with Store.open(f"sqlite:///{tmp_path}/store.db") as store:
        asyncio.run(run(store))


def request_of(caller: str) -> Request:
    return Request({"type": "http", "headers": [], "state": {"who": caller}})


async def turns() -> None:
    """As many of the event loop as a task needs to reach its place in a queue."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_slow_views_whose_clients_have_left_are_not_made(tmp_path: Path) -> None:
    async def run(store: Store) -> None:
        views, made, go_on = Views(store), list[str](), threading.Event()

        def ask(name: str, leaves: bool) -> asyncio.Task[Response]:
            def make() -> Rendered:
                go_on.wait()
                made.append(name)
                return Rendered.of(NONE)

            async def receive() -> Message:
                await (asyncio.sleep(0) if leaves else asyncio.Event().wait())
                return {"type": "http.disconnect"}

            request = Request(request_of("one").scope, receive)
            return asyncio.create_task(views.answer(request, name, make, slow=True))

        tasks = [ask("runs", leaves=False)]
        await turns()
        tasks += [ask("left", leaves=True), ask("waits", leaves=False)]
        await turns()
        go_on.set()
        _, left, _ = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(left, HttpError)
        assert made == ["runs", "waits"]

    with Store.open(f"sqlite:///{tmp_path}/store.db") as store:
        asyncio.run(run(store))
