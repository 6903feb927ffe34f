"""Which thread answers under granian: its own from memory, the event loop's everything else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import httpx2
import pytest
from fastapi import FastAPI
from granian.server import embed
from starlette.types import Message, Scope

from api import answer_thread
from api.server import Server, listen


def test_granian_asks_for_an_answer_from_memory_before_it_wakes_the_event_loop(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # The test's end undoes what `install` changes.
    monkeypatch.setattr(embed, "_new_cbscheduler", embed._new_cbscheduler)
    app, asked, looped = FastAPI(), dict[str, int](), dict[str, int]()

    @app.get("/{name}")
    async def answer(name: str) -> str:
        looped[name] = threading.get_ident()
        return "from the event loop"

    def answer_now(scope: Scope, send: Callable[[Message], object]) -> bool:
        asked[scope["path"]] = threading.get_ident()
        if scope["path"] == "/defect":
            raise ValueError("planted")
        if scope["path"] != "/memory":
            return False
        send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"11")]})
        send({"type": "http.response.body", "body": b"from memory"})
        return True

    def ask(port: int) -> list[str]:
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:
            return [http.get(path).text for path in ("/memory", "/other", "/defect", "/memory")]

    async def run() -> list[str]:
        listener = listen("127.0.0.1", 0)
        port = listener.getsockname()[1]
        server = Server(app, listener)
        serving = asyncio.create_task(server.serve())
        try:
            return await asyncio.to_thread(ask, port)
        finally:
            server.stop()
            await serving

    answer_thread.install(answer_now)
    answers = asyncio.run(run())
    assert answers == ["from memory", '"from the event loop"', '"from the event loop"', "from memory"]
    assert {*asked} == {"/memory", "/other", "/defect"}
    assert {*looped} == {"other", "defect"}
    assert {*asked.values()}.isdisjoint(looped.values())
    assert "planted" in caplog.text
