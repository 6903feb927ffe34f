"""Files that several processes open at the same time."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from types import SimpleNamespace

import pytest
import sqlalchemy as sa

from tuner.evidence import database, sqlite


class Cursor(sqlite3.Cursor):
    """Of a file that is locked for the first few statements."""

    refusals = 2
    code = sqlite3.SQLITE_BUSY

    def execute(self, statement: str, *_: object) -> sqlite3.Cursor:
        if self.refusals:
            self.refusals -= 1
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = self.code
            raise error
        return super().execute(statement)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []
    monkeypatch.setattr(sqlite, "time", SimpleNamespace(monotonic=lambda: sum(slept), sleep=slept.append))
    return slept


def test_a_file_that_is_locked_at_this_moment_is_asked_again(slept: list[float]) -> None:
    cursor = sqlite3.connect(":memory:").cursor(Cursor)
    sqlite.write_ahead(cursor)
    assert len(slept) == 2
    cursor.connection.close()


def test_one_that_stays_locked_is_given_up_as_other_failures_are_at_once(slept: list[float]) -> None:
    cursor = sqlite3.connect(":memory:").cursor(Cursor)
    cursor.refusals = 10**6
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        sqlite.write_ahead(cursor)
    assert sum(slept) == pytest.approx(30, abs=0.1)
    cursor.code = sqlite3.SQLITE_CORRUPT
    slept.clear()
    with pytest.raises(sqlite3.OperationalError):
        sqlite.write_ahead(cursor)
    assert slept == []
    cursor.connection.close()


def test_a_file_whose_connections_are_all_in_use_is_not_called_damaged() -> None:
    pool = sa.QueuePool(lambda: sqlite3.connect(":memory:"), pool_size=1, max_overflow=0, timeout=0)
    with closing(pool.connect()), pytest.raises(sa.exc.TimeoutError) as raised:
        pool.connect()
    said = str(database.unusable("sqlite:///s.db", raised.value))
    assert said.endswith("can't be used (all connections of this process are in use): try again in a second")
    pool.dispose()
