"""Shared set-up: patience, because machines differ and pause; databases that stores run on."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from benchmarks.postgres import Postgres

# pytest-xdist sets COLUMNS in its processes; it must not cut our tables.
for _name in ("COLUMNS", "LINES"):
    os.environ.pop(_name, None)
# Before scikit-learn loads OpenMP: threads of several test processes would wait for one another's processors.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Collections of garbage took a tenth of all processor time, most of it on what lives as long as the process: modules,
# and all the tests.
gc.disable()

# The same examples each time; `--hypothesis-profile search` looks for new ones.
settings.register_profile("gemmtune", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=1000)
settings.load_profile("gemmtune")

#: Time limits that decide what an answer contains, and what they are here.
_LIMITS = {
    "api.app._FIRST_READING_SECONDS": 60.0,
    "api.batches._COMPUTING_SECONDS": 600.0,
    "tuner.views.bests._AT_ONCE_SECONDS": 600.0,
}


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """From here on garbage is collected between tests, and not looked for in what is there now.

    In a test only where there is much: what ends an object may fail where a test has used up the stack.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(500_000)
    gc.enable()


def pytest_runtest_logfinish() -> None:
    """Collects what a test has left, if that is worth it; all generations now and then."""
    young, _, old = gc.get_count()
    if young > 20_000:
        gc.collect(2 if old > 20 else 1)


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


@pytest.fixture(scope="session", autouse=True)
def patience() -> Iterator[None]:
    """Answers are whole however slow the machine; a test about one that runs out of time sets its own limit."""
    with pytest.MonkeyPatch.context() as patch:
        for name, seconds in _LIMITS.items():
            if name.rpartition(".")[0] in sys.modules:
                patch.setattr(name, seconds)
        yield


@pytest.fixture(scope="session", autouse=True)
def migrated_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """New SQLite stores are copies of a migrated file, in a tenth of the time; `open_engine` itself migrates."""
    if "tuner.evidence.store" not in sys.modules:
        yield
        return
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    from tuner.evidence.database import open_engine

    folder = tmp_path_factory.mktemp("migrated")
    open_engine(f"sqlite:///{folder}/store.db", create=True).dispose()
    copies = count()

    def opened(url: str, create: bool, *more: int) -> Engine:
        # Where nothing can be copied, `open_engine` says why.
        with contextlib.suppress(ArgumentError, OSError):
            address = make_url(url)
            path = Path(address.database or ":memory:")
            a_file = address.get_backend_name() == "sqlite" and not address.query and path.name != ":memory:"
            if create and a_file and not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                copy = shutil.copyfile(folder / "store.db", folder / str(next(copies)))
                # Another thread may make the same file: the first one counts.
                path.hardlink_to(copy)
                copy.unlink()
        return open_engine(url, create, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tuner.evidence.store.open_engine", opened)
        yield


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """A real server of this process; the first test that needs it starts it."""
    from benchmarks.postgres import new_folder, running_postgres

    with running_postgres(folder=new_folder(_memory())) as server:
        yield server


def _memory() -> Path | None:
    """A folder in memory, if it has space: a database has 360 files, and a disk takes ten times longer to make them."""
    folder = Path("/dev/shm")
    with contextlib.suppress(OSError):
        if os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > 2 * 2**30:
            return folder
    return None


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


@pytest.fixture
def in_a_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder that the test runs in has been deleted."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
