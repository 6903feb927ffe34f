"""Workers of two versions with other kernels on one fleet, as in a rolling upgrade: neither mixed nor reverted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from space.config import Config
from tests.fleet import PROBLEMS, Fleet, Hand, provenance
from tests.support import DEVICE, FAMILY, measured
from tuner.errors import LeaseLost, ResultRefused
from tuner.evidence.store import Store
from tuner.fleet.campaigns.records import RoundReport, RoundTask
from workers.measurement import Measurement, Provenance

PROBLEM = PROBLEMS[0]
OLD, NEW = (FAMILY.config({"tile_n": n}) for n in (64, 128))


@pytest.fixture
def fleet(database_url: str) -> Iterator[Fleet]:
    with Store.open(database_url) as opened:
        yield Fleet(opened)


def version(hand: Hand, digest: str) -> Provenance:
    """What a worker of one version reports: the digest of its kernels' text."""
    return replace(provenance(hand.number), kernel_source_digest=digest * 64)


def begun(fleet: Fleet, hand: Hand, by: Provenance) -> tuple[RoundTask, list[Config]]:
    """A round of a new campaign that has begun, and what its study has tried."""
    fleet.campaign([PROBLEM])
    task = hand.claimed()
    return task, [entry.config for entry in fleet.rounds.begin(task.round_id, task.lease, by).tried]


def taken(config: Config, us: float) -> tuple[Measurement, ...]:
    return measured(config, us, PROBLEM), measured(config, us, PROBLEM, "final", samples=11)


def served(store: Store) -> tuple[str, float]:
    best = store.best(PROBLEM, DEVICE)
    assert best is not None
    return best.winner.provenance.kernel_source_digest[0], best.median_us


def test_measurements_of_two_kernel_texts_are_never_mixed_and_the_new_ones_stay(fleet: Fleet) -> None:
    first, second = fleet.hand(0), fleet.hand(1)
    old, new = version(first, "a"), version(second, "b")
    task, tried = begun(fleet, first, old)
    assert tried == []
    fleet.rounds.finish(task.round_id, task.lease, RoundReport(taken(OLD, 10.0), old, ended="done"))
    assert served(fleet.store) == ("a", 10.0)
    # The upgraded worker starts anew, and its slower kernel replaces one that nobody builds any more.
    task, tried = begun(fleet, second, new)
    assert tried == []
    fleet.rounds.finish(task.round_id, task.lease, RoundReport(taken(NEW, 12.0), new, ended="done"))
    assert served(fleet.store) == ("b", 12.0)
    assert "kernel source aaaaaaaaaaaa is now bbbbbbbbbbbb" in fleet.store.best_changes(PROBLEM, DEVICE)[-1].reason
    # A worker that is not upgraded yet continues its own study, and takes nothing back, however fast it says it is.
    task, tried = begun(fleet, first, old)
    assert tried == [OLD]
    fleet.rounds.finish(task.round_id, task.lease, RoundReport(taken(NEW, 9.0), old, ended="done"))
    assert served(fleet.store) == ("b", 12.0)
    programs = {entry.study_id: set[str]() for entry in fleet.store.page()}
    for entry in fleet.store.page():
        programs[entry.study_id].add(entry.provenance.kernel_source_digest)
    assert sorted(map(len, programs.values())) == [1, 1]


def test_a_worker_that_is_upgraded_within_its_round_can_not_report_with_other_kernels(fleet: Fleet) -> None:
    hand = fleet.hand()
    task, _ = begun(fleet, hand, version(hand, "a"))
    with pytest.raises(ResultRefused, match="another provenance than the round began with"):
        fleet.rounds.finish(task.round_id, task.lease, RoundReport(taken(OLD, 5.0), version(hand, "b"), ended="done"))
    assert fleet.store.counts()["measurement"] == 0


def test_a_worker_that_restarts_for_its_upgrade_has_lost_its_round(fleet: Fleet) -> None:
    before = fleet.hand(0)
    task, _ = begun(fleet, before, version(before, "a"))
    fleet.fall_silent()
    fleet.sweeper.sweep()
    after = fleet.hand(0)
    again = after.claimed()
    fleet.rounds.begin(again.round_id, again.lease, version(after, "b"))
    late = RoundReport(taken(OLD, 5.0), version(before, "a"), ended="done")
    with pytest.raises(LeaseLost):
        fleet.rounds.finish(task.round_id, task.lease, late)
    fleet.rounds.finish(again.round_id, again.lease, RoundReport(taken(NEW, 12.0), version(after, "b"), ended="done"))
    assert served(fleet.store) == ("b", 12.0)
