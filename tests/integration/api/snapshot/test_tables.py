"""Tables and pages from memory: whole, of one moment, and without what cannot be read."""

from __future__ import annotations

import json

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.tables import TableOut, rendered
from space.kinds.gemm import Gemm
from tests.integration.api.asking import problem_of
from tests.support import DEVICE, keep_best
from tuner.errors import StoreError
from tuner.evidence.store import Store
from tuner.tables.entries import content_of
from tuner.tables.tables import table, table_bytes


class TestTables:
    def test_a_table_has_the_bytes_of_the_export(self, http: TestClient, store: Store) -> None:
        response = http.get(f"/v1/tables/{DEVICE}")
        assert response.content == table_bytes(table(store, DEVICE))
        TableOut.model_validate_json(response.content)

    def test_pages_hold_the_table_once(self, http: TestClient, store: Store) -> None:
        seen, params = [], {"device": DEVICE, "limit": "2"}
        while True:
            page = http.get("/v1/bests", params=params).json()
            seen += page["items"]
            if page["next"] is None:
                break
            params["cursor"] = page["next"]
        assert seen == json.loads(table_bytes(table(store, DEVICE)))["entries"]

    def test_a_cursor_of_another_device_is_refused(self, http: TestClient, store: Store) -> None:
        cursor = http.get("/v1/bests", params={"device": DEVICE, "limit": "2"}).json()["next"]
        other = http.get("/v1/measurements", params={"cursor": cursor})
        problem_of(other, 400, "bad-cursor")


def test_a_table_is_of_one_moment(own_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.tables._AT_ONCE", 1)
    for m in (64, 128, 192):
        keep_best(own_store, Gemm(m, 256, 256))
    app = create_app(own_store)
    follower = app.state.follower
    follower.poll()
    parts = rendered(app.state.table_views.of(follower.snapshot, DEVICE))
    begun = [next(parts) for _ in range(3)]
    keep_best(own_store, Gemm(192, 256, 256), us=3.0)
    follower.poll()
    document = json.loads(b"".join([*begun, *parts]))
    assert document["content"] == content_of(document)


@pytest.mark.parametrize("unreadable", [0, 1, 2])
@pytest.mark.parametrize("most", [0, 100])
def test_a_table_leaves_out_what_it_cannot_read(
    own_store: Store, monkeypatch: pytest.MonkeyPatch, unreadable: int, most: int
) -> None:
    monkeypatch.setattr("api.tables._AT_ONCE", 1)
    monkeypatch.setattr("api.tables.MOST_RENDERED", most)
    bests = [keep_best(own_store, Gemm(m, 256, 256)) for m in (128, 192, 64)]
    load = own_store.served_of
    monkeypatch.setattr(own_store, "served_of", lambda device, keys: [
        StoreError("of another version") if best.problem == bests[unreadable].problem else best  # type: ignore[union-attr]
        for best in load(device, keys)
    ])  # fmt: skip
    with TestClient(create_app(own_store)) as client:
        document = client.get(f"/v1/tables/{DEVICE}").json()
    del bests[unreadable]
    assert [entry["problem"]["key"] for entry in document["entries"]] == [best.problem.key for best in bests]
