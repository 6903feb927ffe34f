"""Rows whose JSON is not what we write: each is left out or shown without it, and everything else is answered."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from sqlalchemy.orm import Session

from api.app import create_app
from space.kinds.gemm import Gemm
from tests.support import DEVICE, keep_best
from tuner.evidence.store import Store

GOOD = Gemm.parse("4096x4096x4096")
#: What a measurement holds in place of what we wrote; each becomes a best.
OF_MEASUREMENTS = (
    ("samples_us", "null"), ("samples_us", "{}"), ("samples_us", '["x"]'), ("samples_us", "[null]"),
    ("samples_us", "[[1.0]]"), ("samples_us", "[1e400]"), ("verification", '{"elements": 4, "mismatches": 0}'),
    ("verification", '{"elements": 4, "mismatches": 0, "worst_ratio": "x", "reference": 5}'), ("clocks", "{}"),
    ("clocks", "[]"), ("clocks", '"x"'), ("clocks", '{"sm_mhz": [], "power_w": "x"}'), ("provenance", "{}"),
)  # fmt: skip
#: What a best holds.
OF_BESTS = (
    ("versus_first", '{"value": "x"}'), ("versus_first", "[1]"), ("versus_best", '{"value": 1e400, "low": 0}'),
    ("failed", "null"), ("failed", "[]"), ("failed", '{"a": "b"}'),
)  # fmt: skip
PAGES = (
    "/", f"/v1/bests?device={DEVICE}", f"/v1/bests:columns?device={DEVICE}", f"/v1/tables/{DEVICE}",
    f"/v1/weights?device={DEVICE}", "/v1/devices", f"/v1/devices/{DEVICE}/drift", "/v1/measurements",
    "/v1/measurements:columns", "/v1/studies", "/v1/failures", "/v1/fleet", "/metrics", "/v1/ladder?n=256&k=256",
)  # fmt: skip


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as opened:
        yield opened


def plant(store: Store, problem: Gemm, column: str, text: str) -> None:
    """Makes a copy of a measurement with another content of one column the best, past all of our code."""
    best = keep_best(store, problem)
    with store.transaction(writes=True) as session:
        change(session, best.winner.id, f"measurement_id = {copied(session, best.winner.id, **{column: text})}")


def copied(session: Session, number: int, **contents: str) -> int:
    """The number of a copy of a measurement with other contents of some columns."""
    columns = [each["name"] for each in sa.inspect(session.connection()).get_columns("measurement")]
    values = {name: name for name in columns if name != "id"} | {"series": "7"}
    values |= {column: f"'{text}'" for column, text in contents.items()}
    if values.pop("provenance", None):
        session.execute(sa.text("INSERT INTO provenance (digest, content) VALUES ('of nobody', '{}')"))
        values["provenance_id"] = "(SELECT id FROM provenance WHERE digest = 'of nobody')"
    copy = f"INSERT INTO measurement ({', '.join(values)}) SELECT {', '.join(values.values())} FROM measurement"
    made = session.connection().exec_driver_sql(f"{copy} WHERE id = {number} RETURNING id".replace("%", "%%"))
    return int(made.scalar_one())


def change(session: Session, number: int, what: str) -> None:
    """Changes the best of a measurement as its writers do: followers read it again."""
    connection = session.connection()
    connection.exec_driver_sql(
        f"UPDATE best SET {what}, version = (SELECT max(version) + 1 FROM best) WHERE measurement_id = {number}"
    )
    connection.exec_driver_sql("UPDATE counter SET value = (SELECT max(version) FROM best) WHERE name = 'best'")


def test_a_malformed_row_breaks_no_page_and_no_answer(store: Store) -> None:
    problems = [Gemm.of(64 * (place + 1), 256, 256) for place in range(len(OF_MEASUREMENTS) + len(OF_BESTS))]
    for problem, (column, text) in zip(problems, OF_MEASUREMENTS, strict=False):
        plant(store, problem, column, text)
    for problem, (column, text) in zip(problems[len(OF_MEASUREMENTS) :], OF_BESTS, strict=True):
        best = keep_best(store, problem)
        with store.transaction(writes=True) as session:
            change(session, best.winner.id, f"{column} = '{text}'")
    keep_best(store, GOOD, us=200.0)
    http = TestClient(create_app(store), raise_server_exceptions=False)
    http.app.state.follower.poll()  # type: ignore[attr-defined]
    wrong = []
    for path in PAGES:
        response = http.get(path)
        wrong += [(path, response.text)] if response.status_code != 200 else []
        if response.headers["content-type"].startswith("application/json"):
            json.loads(response.content, parse_constant=pytest.fail)
    for problem in problems:
        asked = "&".join(f"{name}={extent}" for name, extent in zip("mnk", problem.extents, strict=True))
        for path in ("best", "best/history", "importance", "funnel"):
            response = http.get(f"/v1/{path}?{asked}")
            wrong += [(path, problem.shape, response.text)] if response.status_code not in (200, 404) else []
    for number in range(1, store.counts()["measurement"] + 1):
        status = http.get(f"/v1/measurements/{number}").status_code
        wrong += [(number, status)] if status not in (200, 404) else []
    for number in range(1, store.counts()["study"] + 1):
        status = http.get(f"/v1/studies/{number}").status_code
        wrong += [(number, status)] if status != 200 else []
    assert wrong == []
    answer = http.get("/v1/best?m=4096&n=4096&k=4096").json()
    assert (answer["source"], answer["time_us"]) == ("measured", 200.0)
    # The rows whose best has a malformed ratio are served without it.
    assert {best.problem for best in store.bests(DEVICE)} >= {GOOD, problems[len(OF_MEASUREMENTS)]}


def test_a_policy_that_no_version_knows_breaks_no_page_and_no_answer(store: Store) -> None:
    best = keep_best(store, GOOD)
    with store.transaction(writes=True) as session:
        copied(session, best.winner.id, policy="another", stage="screen")
    http = TestClient(create_app(store), raise_server_exceptions=False)
    http.app.state.follower.poll()  # type: ignore[attr-defined]
    asked = "m=4096&n=4096&k=4096"
    answers = [f"/v1/{path}?{asked}" for path in ("best", "best/history", "importance", "funnel")]
    found = {path: http.get(path).status_code for path in (*PAGES, *answers, "/v1/studies/1", "/v1/measurements/2")}
    assert {path: status for path, status in found.items() if status not in (200, 404)} == {}
    assert http.get(f"/v1/best?{asked}").json()["source"] == "measured"
