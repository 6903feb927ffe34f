"""Stores of more bests than are kept in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from fastapi.testclient import TestClient

from api.answer_service import AnswerService
from api.app import create_app
from api.device_bests import CachedBest
from space.kinds.gemm import Gemm
from tests.integration.api.asking import ASKED
from tests.support import DEVICE, keep_best
from tuner.errors import StoreError
from tuner.evidence.records import Best
from tuner.evidence.store import Store


class TestALargeStore:
    """Bests of which the service keeps the keys, and only a few answers."""

    @pytest.fixture(autouse=True)
    def little(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("api.snapshot.MOST_RENDERED", 2)
        monkeypatch.setattr("api.snapshot_follower.MOST_RENDERED", 2)

    def test_answers_pages_and_tables_are_those_of_a_small_store(
        self, own_store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for m in range(64, 64 * 12, 64):
            keep_best(own_store, Gemm(m, 256, 256))
        keep_best(own_store, device="NVIDIA B200")
        paths = [f"/v1/best?m={m}&n=256&k=256&device=NVIDIA%20H200" for m in (64, 100, 640, 64)]
        paths += [f"/v1/tables/{DEVICE}", f"/v1/bests?device={DEVICE}&limit=3", "/v1/devices"]
        with TestClient(create_app(own_store)) as client:
            found = [client.get(path).content for path in paths]
            snapshot = client.app.state.follower.snapshot  # type: ignore[attr-defined]
            assert sum(not isinstance(held, str) for held in snapshot.devices[DEVICE].held.values()) <= 2
        monkeypatch.setattr("api.snapshot.MOST_RENDERED", 1_000)
        with TestClient(create_app(own_store)) as client:
            assert found == [client.get(path).content for path in paths]

    def test_questions_of_one_moment_are_read_together(self, own_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        for m in range(64, 64 * 12, 64):
            keep_best(own_store, Gemm(m, 256, 256))
        with TestClient(create_app(own_store)) as client:
            service: AnswerService = client.app.state.answer_service  # type: ignore[attr-defined]
            reads: list[int] = []
            load = service.snapshot._load

            def counted(name: str, keys: Sequence[str]) -> Sequence[Best | StoreError]:
                reads.append(len(keys))
                return load(name, keys)

            monkeypatch.setattr(service.snapshot, "_load", counted)

            async def ask(m: int) -> bytes | None:
                found = service.measured(f"m={m}&n=256&k=256".encode())
                held = found if found is None or isinstance(found, CachedBest) else await found()
                return held.answer if held else None

            async def ask_all() -> list[bytes | None]:
                return await asyncio.gather(*map(ask, [*range(64, 64 * 12, 64)] * 2))

            texts = asyncio.run(ask_all())
            assert texts == [client.get(f"/v1/best?m={m}&n=256&k=256").content for m in range(64, 64 * 12, 64)] * 2
            assert max(reads) > 2

    def test_a_store_that_cant_be_read_is_told(self, own_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        for m in (64, 128, 192):
            keep_best(own_store, Gemm(m, 256, 256))

        def fails(name: str, keys: Sequence[str]) -> list[Best | StoreError]:
            raise StoreError("the disk is gone: put it back")

        with TestClient(create_app(own_store)) as client:
            snapshot = client.app.state.follower.snapshot  # type: ignore[attr-defined]
            monkeypatch.setattr(snapshot, "_load", fails)
            statuses = [client.get(f"/v1/best?m={m}&n=256&k=256").status_code for m in (64, 128, 192)]
            assert sorted(statuses) == [200, 200, 503]

    def test_changes_after_the_index_are_followed(self, own_store: Store) -> None:
        for m in (64, 128, 192):
            keep_best(own_store, Gemm(m, 256, 256))
        with TestClient(create_app(own_store)) as client:
            assert client.get("/v1/best?m=128&n=256&k=256").json()["time_us"] == 10.0
            for m in (100, 128):
                keep_best(own_store, Gemm(m, 256, 256), us=3.0)
            client.app.state.follower.poll()  # type: ignore[attr-defined]
            for m in (100, 128):
                assert client.get(f"/v1/best?m={m}&n=256&k=256").json()["time_us"] == 3.0
            keys = [item["problem"]["m"] for item in client.get(f"/v1/bests?device={DEVICE}").json()["items"]]
            assert sorted(keys) == [64, 100, 128, 192]

    def test_exact_questions_are_answered_while_the_store_is_read(
        self, own_store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        best = keep_best(own_store)
        monkeypatch.setattr("api.snapshot_follower.SnapshotFollower.poll", lambda self: None)
        monkeypatch.setattr("api.app._FIRST_READING_SECONDS", 0.0)
        with TestClient(create_app(own_store), raise_server_exceptions=False) as client:
            assert client.get("/readyz").status_code == 503
            for asked in (ASKED, ASKED | {"require": "measured"}):
                found = client.get("/v1/best", params=asked)
                assert (found.status_code, found.json()["time_us"]) == (200, best.median_us)
            assert client.get("/v1/best?m=1&n=8&k=8").status_code == 503
            assert client.get("/v1/best?m=1&n=8&k=8&require=measured").status_code == 404
