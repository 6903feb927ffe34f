"""PostgreSQL that goes silent, fails over, refuses writes or holds a lock: the service says so, and comes back."""

from __future__ import annotations

import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import httpx2
import psycopg
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text
from sqlalchemy.engine import URL, make_url

from api.app import create_app
from benchmarks.postgres import Postgres
from benchmarks.silent_proxy import SilentProxy
from tests.fleet import CALM, Listening, eventually, facts
from tests.integration.api.asking import problem_of
from tests.support import DEVICE, PROBLEM, keep_best
from tuner.errors import StoreError
from tuner.evidence import postgresql
from tuner.evidence.store import Store
from tuner.evidence.watched_connection import SILENCE_SECONDS, WatchedConnection

ASKED = {"m": PROBLEM.m, "n": PROBLEM.n, "k": PROBLEM.k, "device": DEVICE}


@pytest.fixture
def proxied(postgres: Postgres) -> Iterator[tuple[SilentProxy, str]]:
    """A proxy before a new database, and the database's URL through it."""
    url = make_url(postgres.database())
    folder = url.query["host"]
    assert isinstance(folder, str)

    def connect() -> socket.socket:
        far = socket.socket(socket.AF_UNIX)
        far.connect(f"{folder}/.s.PGSQL.5432")
        return far

    with SilentProxy(connect) as proxy:
        through = url.set(host="127.0.0.1", port=proxy.port, query={})
        yield proxy, through.render_as_string(hide_password=False)


def test_a_service_whose_database_goes_silent_answers_503_and_is_back_within_seconds_of_the_failover(
    proxied: tuple[SilentProxy, str],
) -> None:
    proxy, url = proxied
    with Store.open(url) as store:
        keep_best(store)
    with Listening(url, CALM) as service, httpx2.Client(base_url=service.url, timeout=20) as http:
        eventually(lambda: http.get("/readyz").status_code == 200)
        worker = http.post("/v1/workers", json={"name": "w", "facts": _facts()}).json()["worker_id"]
        proxy.fall_silent()
        # A connection used a moment ago is trusted; the next test is about statements under way.
        time.sleep(0.5)
        started = time.monotonic()
        for _ in range(3):
            # Every connection was idle; each call gives up quickly, and none hangs on to a dead connection.
            assert http.post(f"/v1/workers/{worker}:claim").status_code == 503
        assert time.monotonic() - started < 30
        eventually(lambda: http.get("/readyz").status_code == 503)
        assert http.get("/v1/best", params=ASKED).status_code == 200
        proxy.fail_over()
        back = time.monotonic()
        eventually(lambda: http.get("/readyz").status_code == 200, 15)
        eventually(lambda: http.post(f"/v1/workers/{worker}:claim").status_code < 300, 15)
        assert time.monotonic() - back < 15


def test_a_statement_under_way_when_the_server_goes_silent_ends(proxied: tuple[SilentProxy, str]) -> None:
    proxy, url = proxied
    plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    with WatchedConnection.connect(plain) as connection:
        connection.silence_seconds = 1.0
        threading.Timer(0.3, proxy.fall_silent).start()
        started = time.monotonic()
        with pytest.raises(psycopg.OperationalError, match="silent for 1 s"):
            # Its answer would not come before the silence, however late that begins.
            connection.execute("SELECT pg_sleep(60)")
        assert time.monotonic() - started < SILENCE_SECONDS
        assert connection.closed


def test_a_lock_of_a_connection_that_went_silent_is_free_before_anybody_gives_up_on_it(
    proxied: tuple[SilentProxy, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, url = proxied
    # In proportion: a caller outwaits the server's session, and both end before a caller takes the server for dead.
    session = postgresql._SESSION
    names = ("idle_in_transaction_session_timeout", "lock_timeout", "statement_timeout")
    idle, lock, statement = (int(session[name]) / 1000 for name in names)
    assert idle < lock < postgresql.SHORT_SECONDS < statement < SILENCE_SECONDS
    monkeypatch.setitem(session, names[0], 1_000)
    monkeypatch.setattr(postgresql, "SHORT_SECONDS", 2.0)
    take = text("UPDATE counter SET value = value + 1 WHERE name = 'best'")
    with Store.open(url) as silent:
        cut_off = silent.transaction(writes=True)
        cut_off.__enter__().execute(take)
        proxy.fall_silent()
        proxy.fail_over()
        # Where the machine is slow or pauses, so does the server that ends the session.
        monkeypatch.setattr(postgresql, "SHORT_SECONDS", 8.0)
        with Store.open(url) as store:
            with store.transaction(writes=True) as other:
                other.execute(take)
            assert store.changed()["best"] == 1
        with pytest.raises(StoreError):
            cut_off.__exit__(None, None, None)


def test_every_connection_has_keepalives_and_time_outs(postgres: Postgres) -> None:
    with Store.open(postgres.database()) as store:
        for engine in (store._engine, store._notes):
            with engine.connect() as connection:
                driver = connection.connection.driver_connection
                assert isinstance(driver, WatchedConnection)
                assert driver.silence_seconds is not None
                given = driver.info.get_parameters()
                expected = {"keepalives_idle": "5", "tcp_user_timeout": "10000", "connect_timeout": "5"}
                assert expected.items() <= given.items()
                for name in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"):
                    assert connection.exec_driver_sql(f"SHOW {name}").scalar() != "0", name


def test_a_connection_in_use_while_the_store_closes_is_closed_after_its_use(postgres: Postgres) -> None:
    store = Store.open(postgres.database())
    with store._engine.connect() as connection:
        driver = connection.connection.driver_connection
        assert isinstance(driver, WatchedConnection)
        store.close()
        assert not driver.closed
    assert driver.closed


def test_a_process_opens_no_more_connections_than_it_may(postgres: Postgres) -> None:
    with Store.open(postgres.database(), connections=8) as store:
        sizes = [engine.pool.size() for engine in (store._engine, store._notes)]  # type: ignore[attr-defined]
        assert sum(sizes) == 8
        assert all(engine.pool._max_overflow == 0 for engine in (store._engine, store._notes))  # type: ignore[attr-defined]


def test_a_database_that_accepts_no_writes_makes_the_service_not_ready(postgres: Postgres) -> None:
    url = postgres.database()
    name = make_url(url).database
    with Store.open(url) as store, TestClient(create_app(store), raise_server_exceptions=False) as http:
        eventually(lambda: http.get("/readyz").status_code == 200)
        postgres.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        _end_sessions(postgres, name)
        # What was under way when its session ended is told first, and a pooled session that ended once.
        eventually(lambda: "accepts no writes" in http.get("/readyz").text)
        problem_of(http.get("/readyz"), 503, "not-ready")
        eventually(lambda: "accepts no writes" in http.post("/v1/workers/1:leave").text)
        assert "primary" in problem_of(http.post("/v1/workers/1:leave"), 503, "store-unavailable")["detail"]
        postgres.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = off")
        _end_sessions(postgres, name)
        eventually(lambda: http.get("/readyz").status_code == 200)


def test_a_locked_table_ends_calls_with_advice_and_spares_probes_and_answers_of_three_services(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(postgresql._SESSION, "lock_timeout", 1_000)
    url = postgres.database()
    plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    with Store.open(url) as store:
        keep_best(store)
    with ExitStack() as opened:
        services = [
            opened.enter_context(TestClient(create_app(opened.enter_context(Store.open(url, connections=8))),
                                            raise_server_exceptions=False))
            for _ in range(3)
        ]  # fmt: skip
        for http in services:
            eventually(lambda http=http: http.get("/readyz").status_code == 200)  # type: ignore[misc]
        worker = services[0].post("/v1/workers", json={"name": "w", "facts": _facts()}).json()["worker_id"]
        with psycopg.connect(plain) as locker:
            locker.execute("LOCK TABLE worker IN ACCESS EXCLUSIVE MODE")
            for http in services:
                refused = http.post(f"/v1/workers/{worker}:claim")
                found = problem_of(refused, 503, "store-unavailable")
                assert "a lock was held for too long" in found["detail"]
                assert "pg_stat_activity" in found["detail"]
                assert http.get("/readyz").status_code == 200
                assert http.get("/v1/best", params=ASKED).json()["source"] == "measured"
            (open_connections,) = locker.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'gemmtune' AND datname = "
                "current_database()"
            ).fetchone() or (0,)
            assert 0 < open_connections <= 3 * 8
        for http in services:
            assert http.post(f"/v1/workers/{worker}:claim").status_code == 204


@pytest.mark.parametrize(
    ("change", "said"),
    [(lambda url: url.set(host="127.0.0.1", port=1, query={}), "can't be reached"),
     (lambda url: url.set(username="mallory"), "it refused the login"),
     (lambda url: url.set(database="no_such_database"), "it has no such database")],
)  # fmt: skip
def test_an_error_text_names_neither_host_nor_user_and_fits_the_database(
    postgres: Postgres, change: Callable[[URL], URL], said: str
) -> None:
    url = change(make_url(postgres.database()))
    with pytest.raises(StoreError, match=said) as refusal:
        Store.open(url.render_as_string(hide_password=False))
    text = str(refusal.value)
    assert not any(word in text for word in ("127.0.0.1", "mallory", "postgres:", "move the file", "port 1"))
    assert "PostgreSQL" in text


def test_clients_do_not_learn_where_a_sqlite_store_is(tmp_path: Path) -> None:
    """Its folder often names a user; `/readyz` answers everybody."""
    with Store.open(f"sqlite:///{tmp_path}/alice/store.db") as store:
        app = create_app(store)
        http = TestClient(app, raise_server_exceptions=False)
        app.state.follower.poll()
        app.state.shown.warmed.set()
        assert http.get("/readyz").status_code == 200
        with sqlite3.connect(tmp_path / "alice" / "store.db") as file:
            file.execute("DROP TABLE counter")
        app.state.write_probe.ask()
        for path in ("/readyz", "/v1/measurements:columns"):
            response = http.get(path)
            assert response.status_code == 503
            assert "the store can't be used (no such table: counter)" in response.json()["detail"]
            assert "alice" not in response.text


def _facts() -> dict[str, object]:
    return asdict(facts())


def _end_sessions(postgres: Postgres, name: str | None) -> None:
    postgres.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
