"""Another store that is restored under a running service, its counters as high: nothing of the old one is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from api.access import AccessPolicy
from api.app import create_app
from space.kinds.gemm import Gemm
from tests.restores import put_in_place
from tests.support import DEVICE, keep_best
from tuner.evidence import tokens
from tuner.evidence.store import Store
from tuner.fleet.campaigns.workers import Workers
from tuner.views.feed import Feed
from tuner.views.rounds import ProgressBoard

OURS, THEIRS = Gemm(1024, 256, 256), Gemm(512, 512, 256)


def filled(store: Store, problem: Gemm) -> str:
    """One best, of a measurement, and one token, whose secret it returns."""
    keep_best(store, problem)
    return tokens.make(store, "reader", ["read"])[1]


def test_another_store_with_equal_counters_replaces_all_that_was_shown(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    with Store.open(f"sqlite:///{tmp_path}/theirs.db") as theirs:
        new = filled(theirs, THEIRS)
        theirs.backup(tmp_path / "b.gz")
    with Store.open(url) as store:
        old, feed = filled(store, OURS), Feed(store, Workers(store), ProgressBoard())
        feed.poll()
        with TestClient(create_app(store, AccessPolicy(tokens=True))) as client:

            def shown(secret: str) -> list[Any]:
                client.app.state.follower.poll()  # type: ignore[attr-defined]
                client.headers["Authorization"] = f"Bearer {secret}"
                entries = client.get(f"/v1/tables/{DEVICE}").json()["entries"]
                columns = [client.get(path).json()["columns"] for path in
                           (f"/v1/bests:columns?device={DEVICE}", "/v1/measurements:columns")]  # fmt: skip
                return [[entry["problem"]["key"] for entry in entries],
                        *(part.get("key") or part["problem"]["values"] for part in columns)]  # fmt: skip

            assert shown(old) == [[OURS.key]] * 3
            put_in_place(tmp_path / "b.gz", url)
            assert shown(new) == [[THEIRS.key]] * 3
            assert client.get("/v1/service").json()["changes"] == {"best": 1, "measurement": 1, "token": 1}
            assert client.get("/v1/caller", headers={"Authorization": f"Bearer {old}"}).status_code == 401
        assert (feed.poll(), feed.replaced) == ([], True)
        assert (feed.poll(), feed.replaced) == ([], False)
