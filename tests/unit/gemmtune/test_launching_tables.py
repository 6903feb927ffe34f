"""The tables of `gemmtune.launch`: which it takes, from where, and how often it reads them."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gemmtune import launching
from gemmtune.exact import Exact
from space.kinds.gemm import Gemm
from tests.unit.tuner.tables.test_exporters import entry, table
from tuner.errors import SettingsError, TableError
from tuner.settings import Settings
from tuner.tables.entries import canonical
from workers.cuda.machine import Machine


def test_a_table_of_another_driver_is_refused_with_what_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "table.json"
    path.write_bytes(canonical(table(entry(Gemm.of(64, 64, 64)))))
    monkeypatch.setattr(launching, "this_machine", lambda: Machine(driver="590.10.01"))
    with pytest.raises(TableError, match=r"590\.10\.01 runs here; measure again"):
        launching._source(str(path), False)
    assert launching._source(str(path), True).bests
    monkeypatch.setattr(launching, "settings", lambda: Settings(table_stale=True))
    launching._loaded.cache_clear()
    assert launching._source(str(path), False).bests
    launching._loaded.cache_clear()


def test_a_table_may_begin_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "table.json").write_bytes(canonical(table(entry(Gemm.of(64, 64, 64)))))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(launching, "this_machine", Machine)
    assert launching._source("~/table.json", False).bests
    launching._loaded.cache_clear()


def test_threads_that_come_together_share_a_source(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(path: Path) -> Exact:
        time.sleep(0.1)
        return Exact("NVIDIA H200", {})

    monkeypatch.setattr(launching, "exact", slow)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: launching._source("together.json", True), range(4)))
    launching._loaded.cache_clear()
    assert len(set(map(id, found))) == 1


def test_a_table_that_is_put_right_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "table.json"
    monkeypatch.setattr(launching, "this_machine", Machine)
    for content in (None, b"{"):
        if content:
            path.write_bytes(content)
        with pytest.raises(TableError):
            launching._source(str(path), False)
    path.write_bytes(canonical(table(entry(Gemm.of(64, 64, 64)))))
    assert launching._source(str(path), False) is launching._source(str(path), False)
    launching._loaded.cache_clear()


def test_a_path_is_meant_from_the_folder_that_the_program_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launching, "this_machine", Machine)
    read = []
    for size in (64, 128):
        folder = tmp_path / str(size)
        folder.mkdir()
        (folder / "table.json").write_bytes(canonical(table(entry(Gemm.of(size, size, size)))))
        monkeypatch.chdir(folder)
        read.append(launching._source("table.json", False))
    assert read[0] is not read[1]
    monkeypatch.chdir(tmp_path)
    assert launching._source("64/table.json", False) is read[0]
    launching._loaded.cache_clear()


@pytest.mark.parametrize("url", ["http://127.0.0.1:8643", "sqlite:///best.db", Path("https://tune.example")], ids=str)
def test_a_service_is_no_table(url: str | Path) -> None:
    with pytest.raises(TableError, match=rf"^{url} is a URL, and gemmtune\.launch\(\) takes a file or a folder"):
        launching._source(str(url), False)


def test_a_path_behind_a_link_is_that_which_the_system_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "this_machine", Machine)
    (tmp_path / "releases" / "7").mkdir(parents=True)
    (tmp_path / "current").symlink_to(tmp_path / "releases" / "7")
    (tmp_path / "releases" / "table.json").write_bytes(canonical(table(entry(Gemm.of(64, 64, 64)))))
    assert launching._source(str(tmp_path / "current" / ".." / "table.json"), False).bests
    launching._loaded.cache_clear()


def test_a_user_without_a_home_folder_runs_a_table_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> Settings:
        raise SettingsError("this user has no home folder")

    path = tmp_path / "table.json"
    path.write_bytes(canonical(table(entry(Gemm.of(64, 64, 64)))))
    monkeypatch.setattr(launching, "settings", none)
    monkeypatch.setattr(launching, "this_machine", Machine)
    assert launching._source(str(path), False).bests
    launching._loaded.cache_clear()
