"""Backups that somebody edited, with the digest made anew: one sentence about the backup, and a store left empty."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support import keep_best
from tuner.errors import StoreError
from tuner.evidence import database
from tuner.evidence.backup import restore_backup
from tuner.evidence.store import Store

Lines = list[dict[str, Any]]


def lines_of(path: Path) -> Lines:
    """The header and the rows."""
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()[:-1]]


def write(path: Path, lines: Lines) -> None:
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    last = {"rows": len(lines) - 1, "digest": hashlib.sha256(body).hexdigest()}
    path.write_bytes(gzip.compress(body + json.dumps(last).encode() + b"\n"))


@pytest.fixture(scope="module")
def genuine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("genuine")
    with Store.open(f"sqlite:///{folder}/s.db") as store:
        keep_best(store)
        store.backup(folder / "b.gz")
    return folder / "b.gz"


def first(lines: Lines, table: str) -> dict[str, Any]:
    return next(line for line in lines if line.get("table") == table)


def header(revision: object) -> Callable[[Lines], Any]:
    return lambda lines: lines[0].update(revision=revision)


def row(table: str, **values: object) -> Callable[[Lines], Any]:
    return lambda lines: first(lines, table)["row"].update(values)


def line(**parts: object) -> Callable[[Lines], Any]:
    return lambda lines: first(lines, "measurement").update(parts)


def without(part: str) -> Callable[[Lines], Any]:
    return lambda lines: first(lines, "measurement").pop(part)


def without_counter(name: str) -> Callable[[Lines], Any]:
    return lambda lines: lines.remove({"table": "counter", "row": first(lines, "counter")["row"] | {"name": name}})


def without_problem(lines: Lines) -> None:
    lines.remove(first(lines, "problem"))


def twice(lines: Lines) -> None:
    lines.append(first(lines, "config"))


REFUSED = "the backup has a row of {} that can't be stored"
FORGED = {
    "no table": (without("table"), "line 11 is no row of a table"),
    "no row": (without("row"), "line 11 is no row of a table"),
    "a list as row": (line(row=[1]), "line 11 is no row of a table"),
    "a list as table": (line(table=["measurement"]), "line 11 is no row of a table"),
    "a list": (lambda lines: lines.append([1]), "can't be read as a backup"),
    "a number": (lambda lines: lines.append(1), "can't be read as a backup"),
    "schema base": (header("base"), "the backup has schema base"),
    "schema -1": (header("-1"), "the backup has schema -1"),
    "schema head": (header("head"), "the backup has schema head"),
    "no schema": (header(None), "the backup has schema None"),
    "a time that is none": (row("measurement", taken_at="noon"), REFUSED.format("measurement")),
    "a number as time": (row("measurement", taken_at=5), REFUSED.format("measurement")),
    "no time": (row("measurement", taken_at=None), REFUSED.format("measurement")),
    "an unknown column": (row("measurement", vbios="96"), r"\(there is no column 'vbios'\)"),
    "a number that is too large": (row("measurement", series=2**70), REFUSED.format("measurement")),
    "an object as number": (row("measurement", series={"a": 1}), REFUSED.format("measurement")),
    "a word as number": (row("measurement", median_us="fast"), REFUSED.format("measurement")),
    "a word as flag": (row("best", served="yes"), REFUSED.format("best")),
    "a NUL": (row("measurement", note="a\0b"), "holds a NUL"),
    "half a surrogate": (row("measurement", note="\ud800"), "half of a surrogate pair"),
    "a time below zero": (row("measurement", median_us=-1.0), REFUSED.format("measurement")),
    "a best that failed": (row("best", outcome="timeout"), REFUSED.format("best")),
    "a row twice": (twice, REFUSED.format("config")),
    "a problem that is gone": (without_problem, "use another backup"),
    "no counter": (without_counter("best"), "the backup lacks the counters best: use another backup"),
}  # fmt: skip


@pytest.mark.parametrize("kind", FORGED)
def test_a_forged_backup_is_told_and_leaves_the_store_empty(
    kind: str, genuine: Path, tmp_path: Path, database_url: str
) -> None:
    forge, said = FORGED[kind]
    lines = lines_of(genuine)
    forge(lines)
    write(tmp_path / "b.gz", lines)
    with pytest.raises(StoreError, match=said) as error:
        restore_backup(tmp_path / "b.gz", database_url)
    assert "backup" in str(error.value)
    assert "move the file away" not in str(error.value)
    with Store.open(database_url) as store:
        assert store.counts()["problem"] == 0
        keep_best(store)


@pytest.mark.parametrize("kind", ["a time that is none", "a row twice", "a problem that is gone", "no counter"])
def test_a_backup_that_is_refused_late_leaves_no_file_and_takes_none_away(
    kind: str, genuine: Path, tmp_path: Path
) -> None:
    lines, path, url = lines_of(genuine), tmp_path / "s.db", f"sqlite:///{tmp_path}/s.db"
    FORGED[kind][0](lines)
    write(tmp_path / "b.gz", lines)
    with pytest.raises(StoreError):
        restore_backup(tmp_path / "b.gz", url)
    assert [each.name for each in tmp_path.iterdir()] == ["b.gz"]
    for prepare in (Path.touch, lambda path: Store.open(f"sqlite:///{path}").close()):
        prepare(path)
        with pytest.raises(StoreError):
            restore_backup(tmp_path / "b.gz", url)
        assert path.exists()


def test_a_value_nested_too_deep_is_no_backup(tmp_path: Path) -> None:
    (tmp_path / "b.gz").write_bytes(gzip.compress(b"[" * 200_000))
    with pytest.raises(StoreError, match="can't be read as a backup"):
        restore_backup(tmp_path / "b.gz", f"sqlite:///{tmp_path}/s.db")


@pytest.mark.parametrize("revision", ["0001", "0002"])
def test_a_backup_from_before_the_counters_is_restored_with_them(
    tmp_path: Path, database_url: str, revision: str
) -> None:
    old = database.connect(f"sqlite:///{tmp_path}/old.db")
    with database.migrating(old) as connection:
        database.migrate(connection, revision)
        device = sa.text("INSERT INTO device (id, name, kind) VALUES (1, 'NVIDIA H200', 'cuda')")
        connection.execute(device)
    with Store(old) as store:
        store.backup(tmp_path / "b.gz")
    assert restore_backup(tmp_path / "b.gz", database_url)["device"] == 1
    with Store.open(database_url) as store:
        keep_best(store)
        assert store.changed().items() >= {"best": 1, "measurement": 1, "token": 0}.items()
