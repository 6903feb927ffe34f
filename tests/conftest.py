"""Shared set-up: hypothesis without deadlines, because machines differ; databases that stores run on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from benchmarks.postgres import Postgres

settings.register_profile("gemmtune", deadline=None)
settings.load_profile("gemmtune")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A real server, started by the first test that asks for it."""
    from benchmarks.postgres import running_postgres

    with running_postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store's URL on each kind of database, its content empty."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/deep/store.db"
    server: Postgres = request.getfixturevalue("postgres")
    return server.database()
