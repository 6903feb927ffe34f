"""Cursors of lists name the store whose rows they count."""

from __future__ import annotations

from pathlib import Path

from fastapi.testclient import TestClient

from api.app import create_app
from tests.fleet import BY_HAND, PROBLEMS, Fleet
from tests.integration.api.asking import problem_of
from tests.restores import put_in_place
from tests.support import DEVICE, keep_best
from tuner.evidence.store import Store

#: Lists whose place is a row's id.
LISTS = (
    "measurements?limit=1", "studies?limit=1", "workers?limit=1", "rounds?limit=1", "campaigns?limit=1",
    "campaigns?limit=1&order=newest", "campaigns/1/problems?limit=1",
    f"best/history?limit=1&device={DEVICE}&m={PROBLEMS[0].m}&n={PROBLEMS[0].n}&k={PROBLEMS[0].k}",
)  # fmt: skip


def filled(store: Store) -> None:
    """Two rows of each list."""
    fleet = Fleet(store)
    for _ in range(2):
        fleet.campaign(PROBLEMS[:2])
    for number in range(2):
        fleet.hand(number).claimed()
    for us in (20.0, 10.0):
        keep_best(store, PROBLEMS[0], us=us)


def test_a_page_of_another_store_does_not_follow_one_of_that_before(database_url: str, tmp_path: Path) -> None:
    """Rows of the new store up to the number in the cursor would be missed, and the others mixed with the old one's."""
    with Store.open(f"sqlite:///{tmp_path}/theirs.db") as theirs:
        filled(theirs)
        theirs.backup(tmp_path / "b.gz")
    with Store.open(database_url) as store, TestClient(create_app(store, timing=BY_HAND)) as http:
        filled(store)
        following = {path: http.get(f"/v1/{path}").json()["next"] for path in LISTS}
        for path, cursor in following.items():
            assert len(http.get(f"/v1/{path}&cursor={cursor}").json()["items"]) == 1
        put_in_place(tmp_path / "b.gz", database_url)
        for path, cursor in following.items():
            refused = problem_of(http.get(f"/v1/{path}&cursor={cursor}"), 400, "bad-cursor")
            assert refused["detail"] == (
                "the cursor belongs to another store, as before a restore: leave it out for the first page"
            )


def test_the_first_study_of_a_store_ends_no_list(database_url: str, tmp_path: Path) -> None:
    """A store is told from others by its first study; who pages through a new fleet's campaigns has the same one."""
    with Store.open(database_url) as store, TestClient(create_app(store, timing=BY_HAND)) as http:
        fleet = Fleet(store)
        for _ in range(2):
            fleet.campaign(PROBLEMS[:2])
        asked: dict[str, str | int] = {"limit": 1, "cursor": http.get("/v1/campaigns?limit=1").json()["next"]}
        keep_best(store)
        assert [item["id"] for item in http.get("/v1/campaigns", params=asked).json()["items"]] == [2]
        store.backup(tmp_path / "b.gz")
        put_in_place(tmp_path / "b.gz", database_url)
        problem_of(http.get("/v1/campaigns", params=asked), 400, "bad-cursor")
