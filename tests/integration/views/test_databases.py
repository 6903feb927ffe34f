"""The views read the same from every database."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from sqlalchemy import inspect

from space.kinds.gemm import Gemm
from tests.fleet import eventually
from tests.recorded_store import PATIENT
from tests.support import DEVICE, FACTS, FAMILY, PROBLEM, PROVENANCE, keep_best, measured, study_key, today
from tuner.evidence import revocations
from tuner.evidence.models import ProblemRow, StudyRow
from tuner.evidence.store import Store
from tuner.fleet.campaigns.campaigns import Campaigns
from tuner.fleet.campaigns.records import CampaignRequest, RoundProgress, RoundReport
from tuner.fleet.campaigns.rounds import Rounds
from tuner.fleet.campaigns.workers import Workers
from tuner.views import bests, campaigns, measurements, studies, versions
from tuner.views import feed as feeds
from tuner.views.bests import BestColumns
from tuner.views.drift import drift
from tuner.views.failures import FailureFilter, failures
from tuner.views.feed import Feed
from tuner.views.fleet import fleet_facts
from tuner.views.measurements import MeasurementColumns, Wanted
from tuner.views.outlook import outlook
from tuner.views.rounds import ProgressBoard, RoundFilter, page
from workers.measurement import Outcome

CONFIGS = [FAMILY.config({"stages": stages}) for stages in (2, 3, 4)]


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as opened:
        yield opened


def test_bests_and_measurements(store: Store) -> None:
    columns, rows = BestColumns(store), MeasurementColumns(store)
    assert len(columns.of(DEVICE)) == 0
    best = keep_best(store)
    document = columns.of(DEVICE).document()
    assert document["columns"]["key"] == [PROBLEM.key]
    assert document["columns"]["time_us"] == [best.median_us]
    # What was read before is extended, not read again.
    before = rows.document(Wanted())
    study = store.begin_study(study_key(PROBLEM), fresh=True)
    failed = measured(CONFIGS[2], outcome=Outcome.LAUNCH)
    taken = store.record_many(study.id, [*map(measured, CONFIGS[:2]), failed], PROVENANCE)
    after = rows.document(Wanted())
    assert (before["rows"], after["rows"], after["total"]) == (1, 4, 4)
    assert list(after["columns"]["id"]) == [best.winner.id, *(one.id for one in taken)]
    assert after["columns"]["taken_at"][0] == pytest.approx(best.winner.taken_at.timestamp(), abs=0.01)
    sampled = rows.document(Wanted(limit=2))
    assert (sampled["sampled"], sampled["step"], sampled["rows"]) == (True, 2, 2)
    of_study = rows.document(Wanted(problem=PROBLEM.key, device=DEVICE, study=study.id))
    assert of_study["columns"]["outcome"]["values"] == ["correct", "launch"]
    (newest, _) = studies.page(store, PROBLEM, DEVICE, 0, 10)
    assert (newest.measured, newest.failed, newest.best_us) == (3, {"launch": 1}, 10.0)
    assert studies.in_full(store, study.id).finals == ()
    grouped = failures(store, FailureFilter(device=DEVICE, problem=PROBLEM.key, family=FAMILY.name))
    assert [(group.outcome, group.count) for group in grouped.groups] == [("launch", 1)]
    assert drift(store, DEVICE).programs[0].bests == 1


def test_studies_of_problems_that_only_a_newer_version_reads_are_left_out_of_pages(store: Store) -> None:
    first, second = (store.begin_study(replace(study_key(PROBLEM), source=source)) for source in "ab")
    with store.transaction(writes=True) as session:
        newer = ProblemRow(key="sparse_gemm:bf16:64", m=1, n=1, k=1, kind="sparse_gemm", fields={})
        row = session.get_one(StudyRow, first.id)
        names = {*inspect(StudyRow).columns.keys()} - {"id", "problem_id"}
        same = {name: getattr(row, name) for name in names}
        session.add_all(StudyRow(**same | {"source": source}, problem=newer) for source in "cde")
    third = store.begin_study(study_key(PROBLEM))
    shown = [each.id for each in studies.page(store, None, None, 0, 10)]
    assert shown == [third.id, second.id, first.id]
    assert [each.id for each in studies.page(store, None, None, 0, 2)] == shown[:2]
    assert [each.id for each in studies.page(store, None, None, second.id, 2)] == shown[2:]


def test_the_outlook_of_a_problem_that_no_kernel_takes_is_empty(store: Store) -> None:
    study = store.begin_study(study_key(Gemm.parse("512x512x512", "fp8_e5m2_acc16")))
    found = outlook(store, study.id, None)
    assert (found.tried, found.pool, found.chance, found.gain) == (0, 0, None, None)


def test_a_revoked_best_disappears(store: Store) -> None:
    workers, rounds = Workers(store, PATIENT), Rounds(store, PATIENT)
    columns, feed = BestColumns(store), Feed(store, workers, ProgressBoard())
    problem = Gemm.parse("512x512x512")
    Campaigns(store).create(CampaignRequest("a", (Gemm.parse("512x512x512"),), ((DEVICE, "cuda"),)))
    worker = workers.register("liar", FACTS).worker_id
    task = rounds.claim(worker)
    assert task is not None
    rounds.begin(task.round_id, task.lease, PROVENANCE)
    report = (measured(CONFIGS[0], 20.0, problem), measured(CONFIGS[0], 20.0, problem, "final", samples=11))
    rounds.finish(task.round_id, task.lease, RoundReport(report, PROVENANCE, 1.0, "done"))
    keep_best(store)
    assert len(columns.of(DEVICE)) == 2
    before = columns.of(DEVICE).version
    feed.poll()
    revocations.revoke(store, worker="liar")
    gone = columns.of(DEVICE).since(before)
    assert gone is not None
    assert (gone["changed"], gone["rows"], gone["total"]) == ([problem.key], 0, 1)
    assert columns.of(DEVICE).document()["columns"]["key"] == [PROBLEM.key]
    assert any(event.data.get("removed") for event in feed.poll())
    marked = MeasurementColumns(store).document(Wanted())["columns"]["revoked"]
    assert sum(map(bool, marked)) == 2


def test_no_answer_drifted_by_what_was_revoked(store: Store) -> None:
    workers, rounds = Workers(store, PATIENT), Rounds(store, PATIENT)
    keep_best(store)
    Campaigns(store).create(CampaignRequest("a", (PROBLEM,), ((DEVICE, "cuda"),)))
    task = rounds.claim(workers.register("liar", FACTS).worker_id)
    assert task is not None
    told = replace(today(PROBLEM, DEVICE), driver="999.1")
    rounds.begin(task.round_id, task.lease, told)
    report = (measured(CONFIGS[1], 5.0), measured(CONFIGS[1], 5.0, PROBLEM, "final", samples=11))
    rounds.finish(task.round_id, task.lease, RoundReport(report, told, 1.0, "done"))
    found = drift(store, DEVICE)
    assert ([program.driver for program in found.programs], len(found.changes)) == (["580.1", "999.1"], 1)
    revocations.revoke(store, worker="liar")
    found = drift(store, DEVICE)
    assert ([program.driver for program in found.programs], found.changes) == (["580.1"], ())


def test_what_changed_stands_where_a_new_reader_finds_it(store: Store) -> None:
    columns = BestColumns(store)
    shapes, seen = [(512, 256, 256), (64, 256, 256), (8192, 256, 256), (256, 64, 256)], 0
    for m, n, k in shapes:
        keep_best(store, Gemm(m, n, k))
        shown, new = columns.of(DEVICE).document(), BestColumns(store).of(DEVICE).document()
        assert str(shown["columns"]) == str(new["columns"])
        assert shown["gain"] == new["gain"]
        since = columns.of(DEVICE).since(seen) if seen else None
        seen = shown["version"]
        if since:
            (row,) = [shown["columns"]["key"].index(key) for key in since["changed"]]
            assert since["columns"]["key"] == [Gemm(m, n, k).key]
            assert since["columns"]["time_us"] == shown["columns"]["time_us"][row : row + 1]
    assert shown["columns"]["key"] == sorted(Gemm(*shape).key for shape in shapes)


def test_what_is_not_compared_at_once_is_compared_afterwards(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bests, "_AT_ONCE_SECONDS", 0.0)
    for m in (64, 128, 192):
        keep_best(store, Gemm(m, 256, 256))
    known = BestColumns(store).of(DEVICE)
    eventually(lambda: list(known.document()["columns"]["forbidden"]) == [False] * 3)


def test_too_many_changes_are_all_rows(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    columns, feed = BestColumns(store), Feed(store, Workers(store, PATIENT), ProgressBoard())
    feed.poll()
    for m in (64, 128, 192):
        keep_best(store, Gemm(m, 256, 256))
    known = columns.of(DEVICE)
    assert known.since(known.version + 1) is None  # the store was restored
    monkeypatch.setattr(bests, "MOST_SINCE", 1)
    monkeypatch.setattr(feeds, "MOST_PROBLEMS", 1)
    assert known.since(known.version - 2) is None
    found = known.since(known.version - 1)
    assert found is not None
    assert found["changed"] == [Gemm(192, 256, 256).key]
    assert feed.poll()[-1].data["problems"] is None


def test_the_fleet(store: Store) -> None:
    workers, rounds, board = Workers(store, PATIENT), Rounds(store, PATIENT), ProgressBoard()
    feed = Feed(store, workers, board)
    feed.poll()
    campaign, _ = Campaigns(store).create(CampaignRequest("a", (PROBLEM,), ((DEVICE, "cuda"),)))
    worker = workers.register("one", FACTS).worker_id
    task = rounds.claim(worker)
    assert task is not None
    board.put(task.round_id, RoundProgress("screen", 3, 12.5))
    now = fleet_facts(store, workers, board)
    assert [(device.live, device.busy, device.waiting_problems) for device in now.devices] == [(1, 1, 0)]
    (running,) = page(store, board, RoundFilter(worker, campaign.id, "running", now.at), 2**31 - 1, 10)
    assert running.progress is not None
    assert campaigns.problem_columns(store, campaign.id)["columns"]["round_id"] == (task.round_id,)
    assert {event.name for event in feed.poll()} == {"campaign", "worker", "round", "problem"}


def test_measurements_that_come_while_others_are_read_are_shown_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL shows each statement of a transaction what was committed by then."""
    monkeypatch.setattr(measurements, "MOST_HELD", 0)
    first, step = keep_best(store).winner.id, measurements._step

    def late(total: int, limit: int) -> int:
        keep_best(store)
        return step(total, limit)

    columns = MeasurementColumns(store)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(measurements, "_step", late)
        found = columns.document(Wanted())
    assert (found["rows"], found["total"], found["version"] % versions.CHANGES) == (1, 1, first)
    assert columns.document(Wanted())["columns"]["id"].tolist() == [first, first + 1]
