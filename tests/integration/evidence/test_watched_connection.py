"""A connection to PostgreSQL tells the server's silence from a pause of its own process."""

from __future__ import annotations

import time
from itertools import count
from types import SimpleNamespace

import pytest
from sqlalchemy.engine import make_url

from benchmarks.postgres import Postgres
from tuner.evidence.watched_connection import SILENCE_SECONDS, WatchedConnection


def test_a_pause_of_this_process_is_no_silence_of_the_server(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = count(0, 100)
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + next(pauses))
    plain = make_url(postgres.database()).set(drivername="postgresql").render_as_string(hide_password=False)
    with WatchedConnection.connect(plain) as connection:
        monkeypatch.setattr("tuner.evidence.watched_connection.time", clock)
        assert connection.execute("SELECT pg_sleep(0.3)").fetchone() is not None
        assert next(pauses) >= 200 > SILENCE_SECONDS
