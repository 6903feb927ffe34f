"""Shared set-up: hypothesis without deadlines, because machines differ; databases that stores run on."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from benchmarks.postgres import Postgres

# pytest-xdist sets COLUMNS in its processes; it must not cut our tables.
for _name in ("COLUMNS", "LINES"):
    os.environ.pop(_name, None)

# The same examples each time; `--hypothesis-profile search` looks for new ones.
settings.register_profile("gemmtune", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=1000)
settings.load_profile("gemmtune")


@pytest.fixture(autouse=True)
def own_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Isolates each test from the machine's settings and from other tests'."""
    for name in [name for name in os.environ if name.startswith("GEMMTUNE_")]:
        monkeypatch.delenv(name)
    _forget_settings()
    yield
    _forget_settings()


def _forget_settings() -> None:
    if "tuner.settings" in sys.modules:
        sys.modules["tuner.settings"].settings.cache_clear()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """A real server of this process; the first test that needs it starts it."""
    from benchmarks.postgres import running_postgres

    with running_postgres() as server:
        yield server


@pytest.fixture
def postgres(postgres_server: Postgres) -> Iterator[Postgres]:
    """That server; drops a test's databases after the test."""
    yield postgres_server
    postgres_server.drop_databases()


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of an empty store on each kind of database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/deep/store.db"
    server: Postgres = request.getfixturevalue("postgres")
    return server.database()
