"""Rounds on real databases: each problem once at a time, each measurement once, late answers refused."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from benchmarks.storm_audit import audit
from space.kinds.gemm import Gemm
from tests.fleet import PROBLEMS, Fleet, provenance, time_of
from tests.support import DEVICE, FAMILY, measured, only_newer_reads
from tuner.errors import LeaseLost
from tuner.evidence.store import Store
from tuner.fleet.campaigns import results
from tuner.fleet.campaigns.records import CampaignBudget, CampaignStatus, ProblemStatus, RoundReport
from tuner.fleet.campaigns.statistics import fleet_statistics
from tuner.fleet.campaigns.workers import LiveWorker, touch
from tuner.views import studies
from workers.measurement import Measurement


def test_a_campaign_is_worked_off_and_says_what_it_gained(fleet: Fleet) -> None:
    campaign, hand = fleet.campaign(), fleet.hand()
    seen = []
    while task := hand.claim():
        seen.append(task.problem_key)
        hand.work(task)
    assert seen == [problem.key for problem in PROBLEMS]
    fleet.sweeper.sweep()
    summary = results.summary(fleet.store, campaign.id)
    assert summary.progress.campaign.status is CampaignStatus.FINISHED
    assert summary.progress.campaign.stopped_because == "every problem has ended"
    assert (summary.progress.problems["done"], summary.progress.tried) == (6, 120)
    assert summary.gain
    assert (summary.gain.problems, summary.gain.faster) == (6, 6)
    assert summary.gain.geometric_mean > 1
    # Finals are no candidates.
    assert sum(fleet_statistics(fleet.store).measured.values()) == 120
    audited = audit(fleet.store, campaign.id, [], 60.0)
    assert [check for check in audited.checks if not check.holds] == []
    for problem in results.problems(fleet.store, campaign.id):
        best = fleet.store.best(problem.problem, DEVICE)
        assert best
        assert (best.winner.id, best.config.key, best.tried) == (problem.measurement_id, problem.config_key, 20)
    assert hand.claim() is None


def test_a_problem_goes_on_where_its_last_round_stopped(fleet: Fleet) -> None:
    campaign, hand = fleet.campaign(PROBLEMS[:2]), fleet.hand()
    task = hand.claimed()
    batch = hand.begin(task).propose()
    first = [measured(config, time_of(config), PROBLEMS[0]) for config in batch]
    hand.announce(task, batch)
    hand.report(task, first)
    again = hand.claimed()
    # Started problems go first.
    assert (again.problem_key, again.round_id != task.round_id) == (task.problem_key, True)
    search = hand.begin(again)
    assert {entry.config for entry in search.tried} == set(batch)
    assert not set(hand.work(again)) & set(batch)
    done = results.problems(fleet.store, campaign.id)[0]
    assert (done.status, done.rounds, done.tried) == (ProblemStatus.DONE, 2, 20)


def test_a_study_that_another_campaign_goes_on_with_has_not_ended(fleet: Fleet) -> None:
    hand, said = fleet.hand(), []
    for candidates in (20, 28):
        fleet.campaign(PROBLEMS[:1], budget=CampaignBudget(candidates, rounds=11))
        task = hand.claimed()
        hand.announce(task, hand.begin(task).propose())
        said += [(study.status, study.stopped_because) for study in studies.page(fleet.store, None, None, 0, 9)]
        hand.work(task)
        said += [(study.status, study.stopped_because) for study in studies.page(fleet.store, None, None, 0, 9)]
    assert said == [
        ("running", ""), ("finished", "the budget of 20 candidates is spent"),
        ("running", ""), ("finished", "the budget of 28 candidates is spent"),
    ]  # fmt: skip


def test_a_config_that_this_version_can_not_read_holds_up_no_study(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.campaign(PROBLEMS[:1])
    hand = fleet.hand()
    task = hand.claimed()
    batch = hand.begin(task).propose()
    hand.announce(task, batch)
    hand.report(task, [measured(config, time_of(config), PROBLEMS[0]) for config in batch])
    only_newer_reads(monkeypatch, batch[0])
    assert {entry.config for entry in hand.begin(hand.claimed()).tried} == set(batch[1:])


def test_a_finalist_that_this_version_can_not_read_holds_up_no_report(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign, hand, own = fleet.campaign(PROBLEMS[:1]), fleet.hand(), PROBLEMS[0]
    task = hand.claimed()
    unread, known, *_ = hand.begin(task).propose()
    screened = [measured(config, time_of(config), own) for config in (unread, known)]
    hand.report(task, [*screened, *(measured(config, 20.0, own, "final", samples=11) for config in (unread, known))])
    only_newer_reads(monkeypatch, unread)
    again = hand.claimed()
    past = fleet.rounds.begin(again.round_id, again.lease, provenance())
    assert past.finals_done
    hand.report(again, ended="the budget is spent")
    done = results.problems(fleet.store, campaign.id)[0]
    assert (done.status, done.config_key) == (ProblemStatus.DONE, known.key)


def test_a_round_is_told_whether_its_finals_are_done(fleet: Fleet) -> None:
    fleet.campaign(PROBLEMS[:1])
    hand = fleet.hand()

    def told(*reported: Measurement) -> bool:
        task = hand.claimed()
        past = fleet.rounds.begin(task.round_id, task.lease, provenance())
        assert not {entry.config for entry in past.tried} & {entry.config for entry in reported}
        hand.report(task, reported)
        return past.finals_done

    own = PROBLEMS[0]
    first, second, third = hand.begin(hand.claimed()).propose()[:3]
    assert not told(measured(first, 20.0, own), measured(first, 20.0, own, "final", samples=11))
    assert told(measured(second, 21.0, own))
    # Something was screened after them.
    assert not told(measured(third, 22.0, own))
    assert not told()


def test_finals_in_which_rules_forbid_all_of_ours_by_now_are_not_done(fleet: Fleet) -> None:
    own, illegal = PROBLEMS[0], FAMILY.config({"tile_n": 256, "stages": 12})
    fleet.campaign([own])
    hand = fleet.hand()
    task = hand.claimed()
    first, *_ = hand.begin(task).propose()
    hand.report(task, [measured(first, 20.0, own), measured(first, 20.0, own, "final", samples=11)])
    again = hand.claimed()
    past = fleet.rounds.begin(again.round_id, again.lease, provenance())
    assert past.finals_done
    fleet.store.record(past.study_id, measured(illegal, 10.0, own, "final"), provenance())
    assert not fleet.rounds.begin(again.round_id, again.lease, provenance()).finals_done


def test_one_claim_too_many_gives_the_same_round_again(fleet: Fleet) -> None:
    fleet.campaign()
    hand = fleet.hand()
    assert hand.claimed() == hand.claimed()


def test_another_lease_than_the_rounds_own_is_refused(fleet: Fleet) -> None:
    fleet.campaign(PROBLEMS[:1])
    hand = fleet.hand()
    task = hand.claimed()
    config, *_ = hand.begin(task).propose()
    forged = replace(task, lease="0" * len(task.lease))
    report = partial(hand.report, forged, [measured(config, 20.0, PROBLEMS[0])])
    for call in (partial(hand.begin, forged), partial(hand.announce, forged, [config]), report):
        with pytest.raises(LeaseLost):
            call()
    assert fleet.store.counts()["measurement"] == 0
    hand.work(task)


def test_a_round_is_charged_by_the_services_clock(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.campaign(PROBLEMS[:1])
    hand = fleet.hand()
    task = hand.claimed()
    fleet.rounds.finish(task.round_id, task.lease, RoundReport(busy_seconds=80_000.0, failure="planted"))
    (worker,) = fleet.workers.page()
    assert 0 <= worker.busy_seconds < 80_000

    # The clock was set back meanwhile.
    task = hand.claimed()

    def earlier(*given: Any, **named: Any) -> LiveWorker:  # noqa: ANN401
        worker = touch(*given, **named)
        return worker._replace(at=worker.at - timedelta(hours=1))

    monkeypatch.setattr("tuner.fleet.campaigns.rounds.touch", earlier)
    charged = results.progress(fleet.store, 1).gpu_seconds
    fleet.rounds.finish(task.round_id, task.lease, RoundReport(busy_seconds=1.0, failure="planted"))
    assert results.progress(fleet.store, 1).gpu_seconds == charged
    assert fleet.workers.page()[0].busy_seconds == worker.busy_seconds


def test_a_report_that_comes_twice_is_stored_once(fleet: Fleet) -> None:
    fleet.campaign(PROBLEMS[:1])
    hand = fleet.hand()
    task = hand.claimed()
    batch = hand.begin(task).propose()
    taken = [measured(config, time_of(config), PROBLEMS[0]) for config in batch]
    for _ in range(3):
        hand.report(task, taken)
    assert fleet.store.counts()["measurement"] == len(batch)


def test_many_workers_at_once_get_each_problem_once(fleet: Fleet) -> None:
    problems = [Gemm.parse(f"{64 * m}x256x256") for m in range(1, 31)]
    fleet.campaign(problems)
    claimed, lock = list[str](), threading.Lock()

    def work(number: int) -> None:
        hand = fleet.hand(number)
        while task := hand.claim():
            with lock:
                claimed.append(task.problem_key)
            hand.begin(task)
            hand.report(task, failure="nothing", hopeless=True)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(claimed) == sorted(problem.key for problem in problems)


def test_the_database_itself_holds_one_open_round_a_problem_and_one_running_a_worker(fleet: Fleet) -> None:
    fleet.campaign(PROBLEMS[:2])
    first, second = (hand.claimed().round_id for hand in (fleet.hand(0), fleet.hand(1)))
    statements = [
        f"UPDATE round SET worker_id=(SELECT worker_id FROM round WHERE id={first}) WHERE id={second}",
        f"UPDATE round SET problem_id=(SELECT problem_id FROM round WHERE id={first}) WHERE id={second}",
        f"UPDATE round SET lease=NULL WHERE id={second}",
    ]
    for statement in statements:
        with pytest.raises(sa.exc.IntegrityError), fleet.store._engine.begin() as connection:
            connection.execute(sa.text(statement))


def test_winners_of_similar_problems_are_told(fleet: Fleet) -> None:
    fleet.campaign(PROBLEMS[:2])
    hand = fleet.hand()
    hand.work(hand.claimed())
    task = hand.claimed()
    past = fleet.rounds.begin(task.round_id, task.lease, provenance())
    best = fleet.store.best(PROBLEMS[0], DEVICE)
    assert best
    assert past.winners == (best.config, best.runner_up)


def test_a_round_by_another_driver_begins_with_what_the_others_study_found(fleet: Fleet) -> None:
    fleet.campaign(PROBLEMS[:1])
    hand = fleet.hand()
    task = hand.claimed()
    search = hand.begin(task)
    taken = [measured(config, time_of(config), PROBLEMS[0]) for config in (search.propose() + search.propose())]
    hand.report(task, taken)
    task = hand.claimed()
    past = fleet.rounds.begin(task.round_id, task.lease, replace(provenance(), driver="590.2"))
    assert past.tried == ()
    fastest = sorted(taken, key=lambda one: (one.median_us, one.config.key))
    assert past.winners == tuple(one.config for one in fastest[:2])
    hand.report(task, handed_back=True)
    assert hand.begin(hand.claimed()).tried != []


def test_without_workers_and_campaigns_a_sweep_only_looks(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.sweeper.sweep()
    written: list[bool] = []
    transaction = Store.transaction

    def noted(store: Store, writes: bool = False, slow: bool | None = None) -> AbstractContextManager[Session]:
        written.append(writes)
        return transaction(store, writes, slow)

    monkeypatch.setattr(Store, "transaction", noted)
    fleet.sweeper.sweep()
    assert written == [False]
    fleet.hand()
    fleet.fall_silent()
    assert fleet.sweeper.sweep() == {"workers lost": 1}
    written.clear()
    fleet.clock += 15
    fleet.sweeper.sweep()
    assert True in written
