"""Which bests a question finds: the served ones of its device, one measured on a GPU before a replayed one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from space.config import Config
from space.kinds.gemm import Gemm
from tests.support import DEVICE, FAMILY, PROBLEM, PROVENANCE, keep_best, measured, only_newer_reads, study_key
from tuner.answering.rivals import finals_of
from tuner.errors import NothingMeasured
from tuner.evidence import bests, measurements, revocations, tokens
from tuner.evidence.picks import bests_of
from tuner.evidence.quick_bests import QuickBests
from tuner.evidence.records import Author, Best, Removed, StoredMeasurement, Unreadable
from tuner.evidence.store import Store
from workers.measurement import Policy

NEAR = replace(PROBLEM, m=2 * PROBLEM.m)
OTHER = "NVIDIA H100 80GB HBM3"
CHAINED, BURST, ELSEWHERE = (FAMILY.config({"tile_n": n}) for n in (64, 128, 192))


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as opened:
        yield opened


def put(
    store: Store, config: Config, us: float, policy: Policy = Policy.CHAIN, kind: str = "cuda", problem: Gemm = NEAR,
    device: str = DEVICE,
) -> Best:  # fmt: skip
    study = store.begin_study(replace(study_key(problem, device), device_kind=kind), fresh=True)
    stored = store.record(study.id, measured(config, us, problem, "final", policy=policy), PROVENANCE)
    assert store.set_bests([Best(problem, device, kind, stored, None, None, None, 1, {})]) == []
    found = store.best(problem, device, policy)
    assert found is not None
    return found


def test_a_rival_that_only_a_newer_version_reads_holds_up_no_best(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = store.begin_study(study_key())
    finals = [measured(config, us, stage="final") for config, us in ((CHAINED, 10.0), (BURST, 12.0))]
    store.set_bests(bests_of(PROBLEM, store.record_many(study.id, finals, PROVENANCE), 2, {}))
    best = store.best(PROBLEM, DEVICE)
    assert best is not None
    assert best.runner_up == BURST
    only_newer_reads(monkeypatch, BURST)
    assert store.best(PROBLEM, DEVICE) == replace(best, runner_up=None)
    later = store.begin_study(study_key(), fresh=True)
    again = store.record(later.id, measured(CHAINED, 11.0, stage="final"), PROVENANCE)
    (remark,) = store.set_bests(bests_of(PROBLEM, [again], 1, {}))
    assert "slower: 11 µs instead of 10 µs" in remark
    assert [rival.measurement.config for rival in finals_of(store, PROBLEM, DEVICE).rivals] == [CHAINED]


def test_an_earlier_version_does_not_replace_what_it_cant_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tell(config: Config, us: float, kernels: str) -> list[str]:
        study, by = store.begin_study(study_key(), fresh=True), replace(PROVENANCE, kernel_source_digest=kernels * 64)
        kept = store.record_many(study.id, [measured(config, us, stage="final")], by)
        return store.set_bests(bests_of(PROBLEM, kept, 1, {}))

    assert tell(CHAINED, 12.0, "a") == tell(BURST, 9.0, "b") == []
    with monkeypatch.context() as earlier:
        only_newer_reads(earlier, BURST)
        assert tell(CHAINED, 8.0, "a")[0].endswith("a newer version's, which replaced its program, stands")
    best = store.best(PROBLEM, DEVICE)
    assert best is not None
    assert best.config == BURST
    only_newer_reads(monkeypatch, BURST)
    # The same program, and one that is new, may have a version of which a value is gone.
    assert tell(CHAINED, 11.0, "b") == []
    assert tell(CHAINED, 13.0, "c") == []


def test_only_the_served_best_of_a_device_is_found(store: Store, database_url: str) -> None:
    served, other = put(store, CHAINED, 10.0), put(store, BURST, 5.0, Policy.BURST)
    elsewhere = put(store, ELSEWHERE, 4.0, device=OTHER)
    assert (served.served, other.served, elsewhere.served) == (True, False, True)
    assert store.best(NEAR, DEVICE) == served
    assert store.best(NEAR, DEVICE, Policy.BURST) == other
    assert store.bests(DEVICE) == store.neighbours(PROBLEM, DEVICE) == store.served_of(DEVICE, [NEAR.key]) == [served]
    assert store.neighbours(PROBLEM, DEVICE, Policy.BURST) == [other]
    assert store.neighbours(PROBLEM, DEVICE, Policy.SUSTAINED) == [served]
    assert len(store.bests()) == 2
    assert store.winners_near(PROBLEM, DEVICE) == (CHAINED,)
    assert [best for _, best in store.bests_after(0, 10)] == [served, elsewhere]
    (first, _), (second, _) = store.bests_after(0, 10)
    assert [number for number, _ in store.bests_after(0, 1)] == [first]
    assert [number for number, _ in store.bests_after(first, 10)] == [second]
    index = [(device, row[0]) for device, _, part in store.best_index(1) for row in part]
    assert sorted(index) == sorted([(DEVICE, NEAR.key), (OTHER, NEAR.key)])
    if store.embedded:
        with QuickBests.open(database_url) or pytest.fail("not opened") as quick:
            assert quick.best(NEAR, DEVICE) == served
            assert quick.best(NEAR, DEVICE, Policy.BURST) == other
            assert quick.neighbours(PROBLEM, DEVICE) == [served]
            assert quick.neighbours(PROBLEM, DEVICE, Policy.BURST) == [other]
            assert quick.neighbours(NEAR, DEVICE) == store.neighbours(NEAR, DEVICE) == []


def test_one_measured_on_a_gpu_comes_before_a_replayed_one(store: Store, database_url: str) -> None:
    put(store, BURST, 5.0, kind="recorded")
    best = put(store, CHAINED, 10.0)
    assert store.best(NEAR, DEVICE) == best
    # Whoever keeps the last of each problem keeps it, too.
    assert store.served_of(DEVICE, [NEAR.key])[-1] == best
    if store.embedded:
        with QuickBests.open(database_url) or pytest.fail("not opened") as quick:
            assert quick.best(NEAR, DEVICE) == best


@pytest.mark.parametrize("wrong", [{"samples_us": (5.0, math.nan, 5.0)}, {"product_joules": math.nan}], ids=str)
def test_what_readers_leave_out_replaces_no_best(tmp_path: Path, wrong: dict[str, Any]) -> None:
    # PostgreSQL stores no NaN in JSON; SQLite does.
    with Store.open(f"sqlite:///{tmp_path}/s.db") as store:
        best = put(store, CHAINED, 10.0)
        faster = replace(measured(BURST, 5.0, NEAR, "final", policy=Policy.CHAIN), **wrong)
        stored = store.record(store.begin_study(study_key(NEAR), fresh=True).id, faster, PROVENANCE)
        (remark,) = store.set_bests([Best(NEAR, DEVICE, "cuda", stored, None, None, None, 1, {})])
        assert "its numbers are not finite" in remark
        assert store.best(NEAR, DEVICE) == best


def test_the_history_is_of_one_problem_on_one_device(store: Store) -> None:
    for problem, device in ((NEAR, DEVICE), (NEAR, OTHER), (PROBLEM, DEVICE)):
        keep_best(store, problem, device, us=10.0)
        keep_best(store, problem, device, us=5.0)
    histories = [store.best_changes(problem, device) for problem, device in ((NEAR, DEVICE), (NEAR, OTHER))]
    assert [len(changes) for changes in histories] == [2, 2]
    assert store.best_changes(NEAR, DEVICE, after=histories[0][0].id) == histories[0][1:]
    for problem, device in ((PROBLEM, DEVICE), (NEAR, OTHER)):
        with pytest.raises(NothingMeasured, match="has no change"):
            store.roll_back(problem, device, histories[0][1].id)
    store.roll_back(NEAR, DEVICE, histories[0][1].id)
    assert {(best.problem, best.device): best.median_us for best in store.bests()} == {
        (NEAR, DEVICE): 10.0, (NEAR, OTHER): 5.0, (PROBLEM, DEVICE): 5.0,
    }  # fmt: skip


def test_who_follows_changes_meets_the_last_one(store: Store) -> None:
    """A follower whose last number is below the counter's would ask for ever."""

    def last() -> int:
        return store.bests_after(0, 10)[-1][0]

    put(store, CHAINED, 10.0)
    put(store, BURST, 5.0, Policy.BURST)
    put(store, BURST, 4.0, Policy.BURST)
    assert last() == store.changed()["best"]
    store.roll_back(NEAR, DEVICE, store.best_changes(NEAR, DEVICE)[-1].id)
    assert store.best(NEAR, DEVICE, Policy.BURST) is not None
    assert last() == store.changed()["best"]


def test_who_follows_changes_misses_none_that_comes_while_it_reads(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL shows each statement of a transaction what was committed by then."""
    _reported_by(store, "node")
    put(store, ELSEWHERE, 4.0, device=OTHER)
    followed, late = bests.followed, list[Best]()

    def read(columns: Mapping[str, Any]) -> Best | Unreadable:
        if not late:
            late.append(put(store, BURST, 5.0, problem=PROBLEM))
            revocations.revoke(store, token="node")
        return followed(columns)

    monkeypatch.setattr(bests, "followed", read)
    found = store.bests_after(0, 10)
    found += store.bests_after(found[-1][0], 10)
    assert late[0] in [each for _, each in found]
    assert isinstance(found[-1][1], Removed)


def test_a_revocation_is_settled_although_finals_come_meanwhile(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    _reported_by(store, "node")
    study, read = store.begin_study(study_key(NEAR), fresh=True), measurements.read
    came = list[StoredMeasurement]()

    def late(*given: Any, **named: Any) -> list[StoredMeasurement]:  # noqa: ANN401
        if not came:
            came.append(store.record(study.id, measured(BURST, 12.0, NEAR, "final"), PROVENANCE))
        return read(*given, **named)

    monkeypatch.setattr(measurements, "read", late)
    assert revocations.revoke(store, token="node").bests == 1
    assert [best.winner.id for best in store.bests(DEVICE)] == [came[0].id]


def test_a_result_that_lost_to_a_revoked_best_takes_its_place(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    _reported_by(store, "node")
    remaining, slower = revocations.remaining_bests, list[str]()

    def before(*given: Any) -> dict[str, Best]:  # noqa: ANN401
        found = remaining(*given)
        if not slower:
            study = store.begin_study(study_key(NEAR), fresh=True)
            stored = store.record(study.id, measured(BURST, 12.0, NEAR, "final"), PROVENANCE)
            slower.extend(store.set_bests([Best(NEAR, DEVICE, "cuda", stored, None, None, None, 1, {})]))
        return found

    monkeypatch.setattr(revocations, "remaining_bests", before)
    revocations.revoke(store, token="node")
    assert "slower: 12 µs instead of 10 µs" in slower[0]
    assert [best.median_us for best in store.bests(DEVICE)] == [12.0]


def _reported_by(store: Store, token: str) -> None:
    """Stores the first best of `NEAR`, reported with a new token."""
    number = tokens.make(store, token, ["work"])[0].id
    study = store.begin_study(study_key(NEAR))
    with store.transaction(writes=True) as session:
        place = replace(measurements.Place.of(session, study.id), author=Author(token_id=number))
        prepared = measurements.prepare(session, place, [measured(CHAINED, 10.0, NEAR, "final")], PROVENANCE)
        (reported,) = measurements.insert_prepared(session, prepared)
    store.set_bests([Best(NEAR, DEVICE, "cuda", reported, None, None, None, 1, {})])


def test_a_best_that_is_restored_where_none_is_left_is_served(store: Store) -> None:
    _reported_by(store, "node")
    better = keep_best(store, NEAR, us=5.0)
    undone = store.roll_back(NEAR, DEVICE, store.best_changes(NEAR, DEVICE)[-1].id)
    elsewhere = put(store, ELSEWHERE, 4.0, device=OTHER)
    revocations.revoke(store, token="node")
    assert store.bests() == [elsewhere]
    # A removal that comes later than the page's end would hide the changes between.
    assert [best for _, best in store.bests_after(0, 1)] == [elsewhere]
    store.roll_back(NEAR, DEVICE, undone.id)
    assert [best.winner for best in store.bests(DEVICE)] == [better.winner]
