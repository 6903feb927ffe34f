"""Backup and restore: everything, on both databases and from one to the other; damaged files leave no trace."""

from __future__ import annotations

import errno
import gzip
import json
import os
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from benchmarks.postgres import Postgres
from tests.fleet import PROBLEMS, Fleet
from tests.support import keep_best
from tuner.errors import StoreError, UnknownWorker
from tuner.evidence import backup, tokens
from tuner.evidence.backup import restore_backup
from tuner.evidence.campaign_models import RoundRow, WorkerRow
from tuner.evidence.store import Store
from tuner.fleet.campaigns import results

MINUTE = timedelta(minutes=1)


@pytest.fixture
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    def made(kind: str) -> str:
        if kind == "sqlite":
            return f"sqlite:///{tmp_path}/restored.db"
        postgres: Postgres = request.getfixturevalue("postgres")
        return postgres.empty_database()

    return made


def fill(store: Store) -> None:
    """A running campaign, a token, and a best of an earlier study."""
    keep_best(store)
    tokens.make(store, "ci", ["read"])
    fleet = Fleet(store)
    fleet.campaign()
    hand = fleet.hand()
    hand.work(hand.claimed())
    hand.begin(hand.claimed())


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_store_comes_back_whole_and_its_campaign_goes_on(
    database_url: str, target: Callable[[str], str], kind: str, tmp_path: Path
) -> None:
    with Store.open(database_url) as store:
        fill(store)
        counts = store.backup(tmp_path / "b.gz")
        assert counts == store.counts()
        bests, pages = store.bests(), store.page()
    url = target(kind)
    assert restore_backup(tmp_path / "b.gz", url).items() <= counts.items()
    with Store.open(url) as store:
        # And the number of the restore.
        counts["counter"] += 1
        assert (store.counts(), store.bests(), store.page()) == (counts, bests, pages)
        # The queue's numbers would mean other jobs and workers here.
        with store.transaction() as session:
            numbered = sa.or_(RoundRow.job_id.is_not(None), WorkerRow.engine_id.is_not(None))
            assert session.scalar(sa.select(sa.func.count()).select_from(RoundRow).join(WorkerRow).where(numbered)) == 0
        # The old worker is gone and its round is lost; another worker finishes the campaign.
        fleet = Fleet(store)
        with store._engine.begin() as connection:
            connection.execute(sa.text("UPDATE worker SET beat_at = '2000-01-01 00:00:00+00:00'"))
        assert fleet.sweeper.sweep()["workers lost"] == 1
        hand = fleet.hand(1)
        while task := hand.claim():
            hand.work(task)
        assert results.progress(store, 1).problems["done"] == len(PROBLEMS)
        keep_best(store, PROBLEMS[0])


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_backup_knows_when_a_worker_was_last_heard(
    database_url: str, target: Callable[[str], str], kind: str, tmp_path: Path
) -> None:
    with Store.open(database_url) as store:
        fill(store)
        with store._engine.begin() as connection:
            connection.execute(sa.text("UPDATE worker SET beat_at = :then"), {"then": datetime.now(UTC) - MINUTE})
        Fleet(store).workers.beat(1)
        store.backup(tmp_path / "b.gz")
    url = target(kind)
    restore_backup(tmp_path / "b.gz", url)
    with Store.open(url) as store:
        (worker,) = Fleet(store).workers.page(0, gone=True)
        assert datetime.now(UTC) - worker.beat_at < MINUTE / 2


def test_who_registered_after_the_backup_is_no_other_worker_of_the_restored_service(
    postgres: Postgres, tmp_path: Path
) -> None:
    with Store.open(postgres.database()) as store:
        store.backup(tmp_path / "b.gz")
        first, second = Fleet(store).hand(0), Fleet(store).hand(1)
    url = postgres.empty_database()
    restore_backup(tmp_path / "b.gz", url)
    with Store.open(url) as store:
        fleet = Fleet(store)
        assert fleet.hand(1).id not in (first.id, second.id)
        with pytest.raises(UnknownWorker):
            fleet.rounds.claim(first.id)


def test_a_backup_is_of_one_moment(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = backup._rows
    with Store.open(database_url) as store:
        tokens.make(store, "early", ["read"])

        def meanwhile(connection: sa.Connection, table: sa.Table) -> Iterator[dict[str, Any]]:
            tokens.make(store, f"late-{table.name}", ["read"])
            return rows(connection, table)

        monkeypatch.setattr(backup, "_rows", meanwhile)
        assert store.backup(tmp_path / "b.gz")["token"] == 1


def test_a_backup_never_overwrites(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/s.db") as store:
        (tmp_path / "there").write_text("precious")
        with pytest.raises(StoreError, match="never overwrites"):
            store.backup(tmp_path / "there")
        assert (tmp_path / "there").read_text() == "precious"
        (tmp_path / "file").write_text("")
        with pytest.raises(StoreError, match="can't be written"):
            store.backup(tmp_path / "file" / "b.gz")


@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_appears_during_a_backup_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    write = backup._write

    def meanwhile(engine: sa.Engine, lines: gzip.GzipFile) -> dict[str, int]:
        (tmp_path / "b.gz").write_text("precious")
        return write(engine, lines)

    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, "this file system has no links")

    if not links:
        monkeypatch.setattr(os, "link", refused)
    with Store.open(f"sqlite:///{tmp_path}/s.db") as store:
        store.backup(tmp_path / "a.gz")
        monkeypatch.setattr(backup, "_write", meanwhile)
        with pytest.raises(StoreError, match="never overwrites"):
            store.backup(tmp_path / "b.gz")
    assert (tmp_path / "b.gz").read_text() == "precious"
    assert not list(tmp_path.glob("*.partial"))


def cut(data: bytes) -> bytes:
    return gzip.compress(gzip.decompress(data)[:-200])


def changed(data: bytes) -> bytes:
    return gzip.compress(gzip.decompress(data).replace(b'"median_us":', b'"median_us":9', 1))


def flipped(data: bytes) -> bytes:
    """With a kind of block that deflate doesn't have, behind gzip's header of ten bytes."""
    return data[:10] + bytes([data[10] | 0b110]) + data[11:]


def dropped(data: bytes) -> bytes:
    lines = gzip.decompress(data).splitlines(keepends=True)
    return gzip.compress(b"".join(lines[:3] + lines[4:]))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (cut, "cut short|can't be read"),
        (changed, "damaged"),
        (dropped, "damaged"),
        (lambda data: data + data, "several backups in one file"),
        (lambda data: data[: len(data) // 2], "can't be read"),
        (flipped, "can't be read"),
        (lambda data: b"nothing", "can't be read"),
        (lambda data: gzip.compress(b"{}\n"), "not a backup of this version"),
        (lambda data: gzip.compress(b"[1]\n"), "can't be read"),
    ],
)
def test_a_damaged_backup_leaves_no_trace(tmp_path: Path, spoil: Callable[[bytes], bytes], said: str) -> None:
    with Store.open(f"sqlite:///{tmp_path}/s.db") as store:
        fill(store)
        store.backup(tmp_path / "b.gz")
    (tmp_path / "b.gz").write_bytes(spoil((tmp_path / "b.gz").read_bytes()))
    with pytest.raises(StoreError, match=said):
        restore_backup(tmp_path / "b.gz", f"sqlite:///{tmp_path}/new.db")
    assert not (tmp_path / "new.db").exists()


def test_a_pipe_is_no_backup(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreError, match="is a pipe or a device"):
        restore_backup(tmp_path / "pipe", f"sqlite:///{tmp_path}/new.db")


def test_a_store_with_rows_is_left_alone(database_url: str, tmp_path: Path) -> None:
    with Store.open(database_url) as store:
        fill(store)
        store.backup(tmp_path / "b.gz")
        counts = store.counts()
        with pytest.raises(StoreError, match="has rows"):
            restore_backup(tmp_path / "b.gz", database_url)
        assert store.counts() == counts


def test_who_writes_during_a_restore_waits_for_its_end(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(f"sqlite:///{tmp_path}/full.db") as store:
        keep_best(store)
        tokens.make(store, "restored", ["read"])
        store.backup(tmp_path / "b.gz")
    fill, writing = backup._fill, list[threading.Thread]()

    def meanwhile(connection: sa.Connection, lines: Iterator[dict[str, Any]]) -> dict[str, int]:
        writing.append(threading.Thread(target=tokens.make, args=(store, "late", ["read"])))
        writing[0].start()
        # It has to wait for the restore; without that it would end at once.
        writing[0].join(0.5)
        return fill(connection, lines)

    monkeypatch.setattr(backup, "_fill", meanwhile)
    with Store.open(database_url) as store:
        restore_backup(tmp_path / "b.gz", database_url)
        writing[0].join()
        assert [token.name for token in tokens.tokens(store)] == ["restored", "late"]
        assert store.changed()["best"] == 1


def test_a_restore_holds_few_long_rows_at_once(
    database_url: str, target: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(database_url) as store:
        fill(store)
        counts = store.backup(tmp_path / "b.gz")
    insert, held = backup._insert, list[int]()

    def inserting(connection: sa.Connection, table: sa.Table | None, rows: list[dict[str, Any]]) -> None:
        held.append(len(json.dumps(rows, separators=(",", ":"))))
        insert(connection, table, rows)

    most = 10_000
    monkeypatch.setattr(backup, "_insert", inserting)
    monkeypatch.setattr(backup, "_MOST_PENDING_BYTES", most)
    assert restore_backup(tmp_path / "b.gz", target("sqlite")).items() <= counts.items()
    assert most / 2 < max(held) < most < sum(held)


def test_a_backup_of_a_newer_schema_is_refused(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/s.db") as store:
        keep_best(store)
        with store._engine.begin() as connection:
            connection.execute(sa.text("UPDATE gemmtune_alembic_version SET version_num = '9999'"))
        store.backup(tmp_path / "b.gz")
    with pytest.raises(StoreError, match="the backup has schema 9999, newer than this gemmtune"):
        restore_backup(tmp_path / "b.gz", f"sqlite:///{tmp_path}/new.db")
    assert not (tmp_path / "new.db").exists()
