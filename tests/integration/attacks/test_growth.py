"""What grows without end is bounded: old rounds, workers and builds are deleted, and a token's builds are counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import insert, text, update

from tests.fleet import BY_HAND, PROBLEMS, QUEUE, Fleet, Hand, facts, provenance
from tuner.errors import FleetError, UnknownWorker
from tuner.evidence import revocations, tokens
from tuner.evidence.campaign_models import BuildRow, RoundRow, WorkerRow
from tuner.evidence.store import Store
from tuner.fleet import builds
from tuner.fleet.campaigns import retention, sweep, workers
from tuner.fleet.campaigns.records import RoundReport
from tuner.fleet.campaigns.retention import delete_old
from tuner.fleet.campaigns.statistics import fleet_statistics
from tuner.fleet.campaigns.workers import Workers

LONG_AGO = datetime.now(UTC) - timedelta(days=100)
BUILD = {
    "arch": "sm_90a", "nvrtc": "13.0", "problem_key": "p", "config_key": "c", "registers": 1, "warnings": [],
    "seconds": 0.1, "cubin_sha256": "0", "cubin": b"x", "offered_by": "node-7", "offered_at": LONG_AGO,
}  # fmt: skip


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as opened:
        yield opened


def worked(store: Store) -> tuple[Fleet, Hand, Hand]:
    """A fleet, a worker that left long ago, and one that works: each has done a round."""
    fleet = Fleet(store, BY_HAND)
    fleet.campaign(PROBLEMS[:2])
    old, new = fleet.hand(0), fleet.hand(1)
    old.work(old.claimed())
    fleet.workers.leave(old.id)
    new.work(new.claimed())
    with store.transaction(writes=True) as session:
        session.execute(update(RoundRow).where(RoundRow.worker_id == old.id).values(ended_at=LONG_AGO))
        session.execute(update(WorkerRow).where(WorkerRow.id == old.id).values(beat_at=LONG_AGO))
    return fleet, old, new


def test_old_rounds_workers_and_builds_are_deleted_and_measurements_stay(store: Store) -> None:
    fleet, _, _ = worked(store)
    with store.transaction(writes=True) as session:
        session.execute(insert(BuildRow), BUILD | {"digest": "a" * 64})
        session.execute(insert(BuildRow), BUILD | {"digest": "b" * 64, "offered_at": datetime.now(UTC)})
    before = store.counts()
    assert delete_old(store, 200.0) == {}
    deleted = {"old rounds deleted": 1, "old workers deleted": 1, "old builds deleted": 1}
    assert deleted.items() <= fleet.sweeper.sweep().items()
    after = store.counts()
    assert after["measurement"] == before["measurement"]
    assert after["best"] == before["best"]
    assert {name: before[name] - after[name] for name in ("round", "worker", "build")} == {
        "round": 1, "worker": 1, "build": 1,
    }  # fmt: skip


def test_counters_of_metrics_do_not_shrink(store: Store) -> None:
    fleet, _, new = worked(store)
    fleet.campaign(PROBLEMS[2:3])

    def counted() -> tuple[int, int, dict[str, int], float]:
        found = fleet_statistics(store)
        rounds = (found.rounds[QUEUE, status] for status in ("done", "failed"))
        return *rounds, found.measured, round(found.busy_seconds[QUEUE], 9)

    def fail() -> None:
        task = new.claimed()
        report = RoundReport((), provenance(1), busy_seconds=1e-6, failure="planted")
        fleet.rounds.finish(task.round_id, task.lease, report)
        with store.transaction(writes=True) as session:
            session.execute(update(RoundRow).values(ended_at=LONG_AGO))

    fail()
    for deleted in (2, 1):
        before = counted()
        assert delete_old(store, 90.0)["old rounds deleted"] == deleted
        assert counted() == before
        fail()
    assert counted() == (2, 3, {QUEUE: 40}, 3e-6)


def test_old_rows_are_deleted_as_fast_as_a_large_fleet_makes_them(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "AT_ONCE", 2)
    monkeypatch.setattr(sweep, "AT_ONCE", 2)
    fleet, _, _ = worked(store)
    with store.transaction(writes=True) as session:
        session.execute(insert(BuildRow), [BUILD | {"digest": 64 * digit} for digit in "abcdef"])
    deleted = [fleet.sweeper.sweep()["old builds deleted"] for _ in range(4)]
    # The newest stays.
    assert deleted == [2, 2, 1, 0]


def test_a_worker_stays_while_a_round_names_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "AT_ONCE", 2)
    fleet = Fleet(store, BY_HAND)
    fleet.campaign(PROBLEMS[:4])
    old, new = fleet.hand(0), fleet.hand(1)
    for hand in (old, old, old, new):
        hand.work(hand.claimed())
    fleet.workers.leave(old.id)
    with store.transaction(writes=True) as session:
        session.execute(update(RoundRow).where(RoundRow.worker_id == old.id).values(ended_at=LONG_AGO))
        session.execute(update(WorkerRow).where(WorkerRow.id == old.id).values(beat_at=LONG_AGO))
    assert delete_old(store, 90.0) == {"old rounds deleted": 2}
    assert delete_old(store, 90.0) == {"old rounds deleted": 1, "old workers deleted": 1}


def test_reports_of_a_worker_whose_row_was_deleted_are_revoked_by_its_number(store: Store) -> None:
    _, old, new = worked(store)
    assert delete_old(store, 90.0)["old workers deleted"] == 1
    for nobody in ("worker-0", "99", "9" * 30, "²"):
        with pytest.raises(UnknownWorker, match="number"):
            revocations.revoke(store, worker=nobody)
    found = revocations.revoke(store, worker=str(old.id), reason="found late")
    assert found.bests == 1
    assert {(each.author.worker_id, each.revoked) for each in store.page()} == {(old.id, True), (new.id, False)}
    assert len(store.bests()) == 1


def test_a_deleted_workers_number_that_another_worker_has_as_its_name_revokes_both(store: Store) -> None:
    fleet, old, new = worked(store)
    fleet.campaign(PROBLEMS[2:4])
    namesakes = [Hand(fleet, 2, str(old.id)), Hand(fleet, 3, str(new.id))]
    for hand in namesakes:
        hand.work(hand.claimed())
    assert delete_old(store, 90.0)["old workers deleted"] == 1

    def revoked(name: int) -> set[int | None]:
        before = {each.id for each in store.page(limit=1_000) if each.revoked}
        revocations.revoke(store, worker=str(name))
        return {each.author.worker_id for each in store.page(limit=1_000) if each.revoked and each.id not in before}

    # Of one that has a row, its number is no name.
    assert revoked(new.id) == {namesakes[1].id}
    assert revoked(old.id) == {old.id, namesakes[0].id}


def test_a_name_of_more_workers_than_a_statement_takes_parameters_is_revoked(store: Store) -> None:
    _, _, new = worked(store)
    columns = "name, slot, queue, device_id, facts, status, gone_because, registered_at, rounds, busy_seconds, beat_at"
    many = f"""
        INSERT INTO worker ({columns})
        WITH RECURSIVE place(number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM place WHERE number < 66000)
        SELECT {columns.replace("status,", "'gone',")} FROM worker CROSS JOIN place WHERE worker.id = :new
    """
    with store.transaction(writes=True, slow=True) as session:
        session.execute(text(many), {"new": new.id})
    assert revocations.revoke(store, worker="worker-1").measurements > 0
    assert {each.revoked for each in store.page() if each.author.worker_id == new.id} == {True}


def test_a_token_registers_so_many_workers_of_so_many_models(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a row, and each model a label of every metric."""
    monkeypatch.setattr(workers, "MOST_OF_A_TOKEN", 3)
    monkeypatch.setattr(workers, "MOST_MODELS_OF_A_TOKEN", 2)
    mine, other = (tokens.make(store, name, ["work"])[0].id for name in ("mine", "other"))
    fleet = Workers(store)
    for place in range(2):
        fleet.leave(fleet.register("w", replace(facts(place), name=f"NVIDIA Fake {place}"), mine).worker_id, mine)
    with pytest.raises(FleetError, match="workers of 2 GPU models"):
        fleet.register("w", replace(facts(7), name="NVIDIA Fake 7"), mine)
    fleet.leave(fleet.register("w", replace(facts(0), name="NVIDIA Fake 0"), mine).worker_id, mine)
    # Also where they are gone: those of the last hour count.
    with pytest.raises(FleetError, match="3 workers"):
        fleet.register("w", replace(facts(0), name="NVIDIA Fake 0"), mine)
    assert store.counts()["device"] == 2
    fleet.register("w", facts(8), other)
    with store.transaction(writes=True) as session:
        session.execute(text("DELETE FROM worker WHERE status = 'gone'"))
    fleet.register("w", replace(facts(7), name="NVIDIA Fake 7"), mine)


def test_a_bad_build_can_be_removed(store: Store) -> None:
    with store.transaction(writes=True) as session:
        session.execute(insert(BuildRow), BUILD | {"digest": "a" * 64})
    assert builds.remove(store, "a" * 64)
    assert not builds.remove(store, "a" * 64)
    assert builds.shared(store, "a" * 64) is None
