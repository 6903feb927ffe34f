"""Configurations that threads change while others look for a source. On the CPU."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

from gemmtune.torch import configure, sources
from space.kinds.gemm import Gemm
from tests.unit.tuner.tables.test_exporters import WON, entry, table
from tuner.errors import StoreError, TableError, TunerError
from tuner.evidence import tokens
from tuner.evidence.store import Store
from tuner.tables.entries import canonical


def test_a_source_that_was_being_opened_does_not_outlive_its_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    opening, opened = threading.Event(), threading.Event()

    def open_(asked: Any) -> Any:  # noqa: ANN401
        named = asked.named
        opening.set()
        opened.wait(10)
        return SimpleNamespace(named=named)

    monkeypatch.setattr(sources, "_open", open_)
    configure("http://before")
    try:
        looking = threading.Thread(target=sources.chosen)
        looking.start()
        assert opening.wait(10)
        configuring = threading.Thread(target=configure, args=("http://after",))
        configuring.start()
        configuring.join(0.2)  # it may wait until the earlier one is open
        opened.set()
        for each in (looking, configuring):
            each.join(10)
        assert sources.chosen().named == "http://after"  # type: ignore[attr-defined]
    finally:
        opened.set()
        configure()


def test_one_word_is_no_list_of_trusted_sources() -> None:
    with pytest.raises(ValueError, match=r"trusted = 'measured' is one text: give a list, as in \['measured'\]"):
        configure(trusted="measured")


@pytest.mark.parametrize("named", ["bundel/", "table.json", "store.db", "~/no/such/store.db"])
def test_a_path_at_which_nothing_is_is_refused_before_the_first_product(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    # torch would compute all products, and only a log would say so.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    before = sources.CHOSEN.generation
    with pytest.raises(TableError, match="is not there: give"):
        configure(named)
    assert sources.CHOSEN.generation == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("named", ["~/table.json", "~/bundle", "~/store.db"])
def test_a_path_in_the_home_folder_that_is_there_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "table.json").write_bytes(canonical(table(entry(WON))))
    (tmp_path / "bundle").mkdir()
    Store.open(f"sqlite:///{tmp_path}/store.db").close()
    monkeypatch.setattr(sources, "exact", lambda path: path)
    try:
        configure(named)
        found = sources.chosen()
        assert found == tmp_path / "bundle" or isinstance(found, sources.Bests)
    finally:
        configure()


def test_a_store_is_configured_beside_those_of_this_process_that_write_it(tmp_path: Path) -> None:
    # Its first byte, read by this process, gave up their locks: what they wrote from then on was lost.
    file = tmp_path / "store.db"
    closes = f"import sqlite3; c = sqlite3.connect({str(file)!r}); c.execute('SELECT * FROM token'); c.close()"
    with Store.open(f"sqlite:///{file}") as store:
        tokens.make(store, "early", ["read"])
        try:
            configure(file)
            sources.chosen()
        finally:
            configure()
        subprocess.run([sys.executable, "-c", closes], check=True)
        tokens.make(store, "late", ["read"])
        with Store.open(f"sqlite:///{file}", create=False) as other:
            assert [token.name for token in tokens.tokens(other)] == ["early", "late"]


@pytest.mark.parametrize("name", ["table", "table.JSON", "table.txt"])
def test_a_table_is_known_by_what_it_holds(tmp_path: Path, name: str) -> None:
    # As `install` knows it. Taken for a store, it left every product to torch.
    (tmp_path / name).write_bytes(canonical(table(entry(WON))))
    try:
        configure(tmp_path / name)
        assert sources.chosen().find(WON, "NVIDIA H200").source == "measured"
    finally:
        configure()


@pytest.mark.parametrize("named", ["table.json", Path("bundle"), "store.db"])
def test_a_path_is_that_of_the_folder_in_which_it_was_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str | Path
) -> None:
    # A program that changes its folder before its first product ran all of them on torch's own kernels.
    (tmp_path / "table.json").write_bytes(canonical(table(entry(WON))))
    for folder in ("bundle", "run"):
        (tmp_path / folder).mkdir()
    Store.open(f"sqlite:///{tmp_path}/store.db").close()
    monkeypatch.setattr(sources, "exact", lambda path: path)
    monkeypatch.chdir(tmp_path)
    try:
        configure(named)
        monkeypatch.chdir(tmp_path / "run")
        found = sources.chosen()
        assert found == tmp_path / "bundle" or isinstance(found, sources.Bests)
    finally:
        configure()


def test_an_unknown_users_home_is_a_path_at_which_nothing_is() -> None:
    with pytest.raises(TableError, match="is not there: give"):
        configure("~nobody-has-this-name/table.json")


@pytest.mark.parametrize("named", ["bundle", "store.db", "sqlite:///no_store.db"])
def test_what_is_named_and_not_there_is_no_empty_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    # It was made, and whoever had misspelt a bundle ran on predictions.
    monkeypatch.chdir(tmp_path)
    there = tmp_path / named
    if "://" not in named:
        there.touch()
    try:
        configure(named)
        there.unlink(missing_ok=True)
        with pytest.raises(TunerError, match="is not there"):
            raise StoreError(sources.chosen().find(Gemm.parse("64x64x64"), "NVIDIA H200").why)
        assert list(tmp_path.iterdir()) == []
    finally:
        configure()


def test_a_store_is_closed_once_another_source_is_configured(tmp_path: Path) -> None:
    problem, path = Gemm.parse("512x512x512"), tmp_path / "store.db"
    nothing = SimpleNamespace(best=lambda *_: None, neighbours=lambda *_: [], wrong=lambda *_: ())
    given = sources.Bests(nothing, trusted=["measured"])
    try:
        with Store.open(f"sqlite:///{path}"):
            configure(path)
            before = sources.chosen()
            before.find(problem, "NVIDIA H200")
            configure(given)
        # The last one to close it brings the log of what was written into the file.
        assert [each.name for each in tmp_path.iterdir()] == [path.name]
        assert before.find(problem, "NVIDIA H200").config is not None
        assert sources.chosen() is given
    finally:
        configure()


def test_a_url_in_capitals_is_a_service_and_no_database() -> None:
    configure("HTTP://127.0.0.1:9")
    try:
        assert isinstance(sources.chosen(), sources.Service)
    finally:
        configure()


def test_a_store_that_fails_for_a_moment_is_asked_again() -> None:
    failures = [StoreError("the PostgreSQL database can't be used: it restarts")]

    def best(*_: object) -> None:
        if failures:
            raise failures.pop()

    bests = SimpleNamespace(best=best, neighbours=lambda *_: [], wrong=lambda *_: ())
    source = sources.Bests(bests, trusted=["measured"])
    problem = Gemm.parse("512x512x512")
    refused = source.find(problem, "NVIDIA H200")
    assert (refused.config, refused.for_now) == (None, True)
    assert "it restarts" in refused.why
    while (found := source.find(problem, "NVIDIA H200")).why == refused.why:
        assert found.for_now, "for nine times as long as the failure took"
    assert not failures
    assert not found.for_now


def test_the_package_has_it_without_an_import_of_its_own() -> None:
    said = "import gemmtune; print(gemmtune.torch.record.__name__)"
    assert subprocess.run([sys.executable, "-c", said], capture_output=True, text=True).stdout == "record\n"


def test_a_store_that_can_not_be_opened_for_now_is_opened_later_and_waited_for_a_tenth_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, asked, problem = 100.0, 0, Gemm.parse("64x64x64")
    Store.open(url := f"sqlite:///{tmp_path}/store.db").close()

    def restarting(*_: object, **__: object) -> Store:
        nonlocal now, asked
        now, asked = now + 5, asked + 1
        raise StoreError("the database restarts")

    configure(url)
    try:
        monkeypatch.setattr(sources, "time", SimpleNamespace(monotonic=lambda: now))
        with monkeypatch.context() as down:
            down.setattr(Store, "open", restarting)
            for _ in range(3):
                found = sources.chosen().find(problem, "NVIDIA H200")
                assert (found.config, found.why, found.for_now) == (None, "the database restarts", True)
            assert asked == 1
        now += 46
        assert sources.chosen().find(problem, "NVIDIA H200").source == "predicted"
    finally:
        configure()


@pytest.mark.parametrize(("said", "seconds"), [("30", 30.0), ("86400", 60.0)])
def test_a_service_that_asks_for_a_wait_gets_it(
    monkeypatch: pytest.MonkeyPatch, said: str, seconds: float
) -> None:
    import httpx2

    from gemmtune import Client

    now, asked = 100.0, 0

    def busy(request: httpx2.Request) -> httpx2.Response:
        nonlocal asked
        asked += 1
        problem = '{"type": "/problems/too-often", "detail": "planted"}'
        return httpx2.Response(429, text=problem, headers={"Retry-After": said})

    monkeypatch.setattr(sources, "time", SimpleNamespace(monotonic=lambda: now))
    service = sources.Service(Client("http://somewhere", transport=httpx2.MockTransport(busy)))
    for wait, times in ((0.0, 1), (seconds - 1, 1), (2.0, 2)):
        now += wait
        for m in (1, 2, 3):
            found = service.find(Gemm.of(m, 64, 64), "NVIDIA H200")
            assert (found.config, found.why, found.for_now) == (None, "planted", True)
        assert asked == times
