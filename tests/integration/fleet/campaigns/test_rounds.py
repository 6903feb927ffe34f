"""Rounds on real databases: each problem once at a time, each measurement once, late answers refused."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from benchmarks.storm_audit import audit
from space.config import Config
from space.kinds.gemm import Gemm
from space.registry import problem_from_key
from tests.fleet import PROBLEMS, Fleet, facts, failing, provenance, time_of
from tests.support import DEVICE, FAMILY, measured
from tuner.errors import FleetError, LeaseLost, ResultRefused, SlotTaken, StoreError, WorkerGone
from tuner.evidence import codec
from tuner.evidence.store import Store
from tuner.fleet.campaigns import results, sweep
from tuner.fleet.campaigns.clock import now
from tuner.fleet.campaigns.records import CampaignBudget, CampaignStatus, ProblemStatus, RoundReport
from tuner.fleet.campaigns.statistics import fleet_statistics
from tuner.fleet.campaigns.workers import LiveWorker, touch
from workers.measurement import Measurement, Outcome, Policy


@pytest.fixture
def fleet(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    # Batches of one size: these tests count rounds.
    monkeypatch.setattr("tuner.studying.screening.batch_size", lambda tried: 16)
    with Store.open(database_url) as store:
        yield Fleet(store)


def statuses(fleet: Fleet, campaign_id: int) -> Counter[str]:
    return Counter(problem.status.value for problem in results.problems(fleet.store, campaign_id))


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


def test_a_config_that_this_version_can_not_read_holds_up_no_study(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.campaign(PROBLEMS[:1])
    hand = fleet.hand()
    task = hand.claimed()
    batch = hand.begin(task).propose()
    hand.announce(task, batch)
    hand.report(task, [measured(config, time_of(config), PROBLEMS[0]) for config in batch])
    read = codec.config_of

    def unreadable(key: str) -> Config:
        if key == batch[0].key:
            raise StoreError("of another version")
        return read(key)

    monkeypatch.setattr(codec, "config_of", unreadable)
    assert {entry.config for entry in hand.begin(hand.claimed()).tried} == set(batch[1:])


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

    def earlier(*given: Any) -> LiveWorker:  # noqa: ANN401
        worker = touch(*given)
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
            hand.report(task, failure="nothing", hopeless=True)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(claimed) == sorted(problem.key for problem in problems)


def test_a_silent_worker_loses_its_round_and_its_late_answer_is_refused(fleet: Fleet) -> None:
    fleet.campaign(PROBLEMS[:1])
    late, other = fleet.hand(0), fleet.hand(1)
    task = late.claimed()
    search = late.begin(task)
    batch = search.propose()
    assert other.claim() is None
    fleet.fall_silent()
    fleet.workers.beat(other.id)
    assert fleet.sweeper.sweep()["workers lost"] == 1
    again = other.claimed()
    assert (again.problem_key, again.lease != task.lease) == (task.problem_key, True)
    taken = [measured(config, time_of(config), PROBLEMS[0]) for config in batch]
    for call in (lambda: late.report(task, taken), lambda: late.announce(task, batch), lambda: late.begin(task)):
        with pytest.raises(LeaseLost, match="not yours"):
            call()
    with pytest.raises(WorkerGone, match="register again"):
        fleet.workers.beat(late.id, task.round_id)
    assert fleet.store.counts()["measurement"] == 0
    other.work(again)


def test_a_beating_worker_keeps_its_round(fleet: Fleet) -> None:
    fleet.campaign(PROBLEMS[:1])
    hand = fleet.hand()
    task = hand.claimed()
    for _ in range(3):
        fleet.pass_time(fleet.timing.silence_seconds / 2)
        assert not fleet.workers.beat(hand.id, task.round_id).stop
        fleet.sweeper.sweep()
    hand.work(task)


def test_silence_does_not_count_while_nobody_listened(fleet: Fleet) -> None:
    fleet.campaign(PROBLEMS[:1])
    hand = fleet.hand()
    hand.claimed()
    fleet.fall_silent()
    fleet.clock += 10 * fleet.timing.silence_seconds
    assert fleet.sweeper.sweep()["workers lost"] == 0
    fleet.workers.beat(hand.id)
    fleet.clock += fleet.timing.silence_seconds
    assert fleet.sweeper.sweep()["workers lost"] == 0


@pytest.mark.parametrize("hours", [1, -1])
def test_a_clock_that_is_set_loses_no_worker_that_works_and_keeps_none_that_is_gone(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    fleet.campaign(PROBLEMS[:2])
    working, dead = fleet.hand(0), fleet.hand(1)
    working.claimed()
    dead.claimed()
    assert fleet.sweeper.sweep()["workers lost"] == 0
    # Every clock is an hour ahead, or behind: the same as heartbeats that are older, or of the future.
    fleet.pass_time(3_600 * hours)
    monkeypatch.setattr(sweep, "now", lambda session: now(session) + timedelta(hours=hours))
    assert fleet.sweeper.sweep()["workers lost"] == 0
    fleet.workers.beat(working.id)
    for share in (0.5, 0.5):
        fleet.clock += share * fleet.timing.silence_seconds
        lost = fleet.sweeper.sweep()["workers lost"]
    assert lost == 1
    assert [worker.id for worker in fleet.workers.page()] == [working.id]


def test_a_candidate_that_kills_its_worker_is_found_and_its_problem_parked(fleet: Fleet) -> None:
    campaign = fleet.campaign(PROBLEMS[:1])
    sizes, bad = [], None
    for number in range(40):
        hand = fleet.hand(number)
        task = hand.claim()
        if task is None:
            break
        search = hand.begin(task)
        batch = [config for config in search.propose() if not task.only] or [
            FAMILY.config(dict(part.split("=") for part in key.partition(":")[2].split(","))) for key in task.only
        ]
        bad = bad or batch[11]
        hand.announce(task, batch)
        sizes.append(len(batch))
        if bad in batch:
            fleet.fall_silent()
            fleet.sweeper.sweep()
        else:
            hand.report(task, [measured(config, time_of(config), PROBLEMS[0]) for config in batch])
            fleet.workers.leave(hand.id)
    fleet.sweeper.sweep()
    problem = results.problems(fleet.store, campaign.id)[0]
    assert sizes == [16, 4, 4, 3, 3, 1]
    assert (problem.status, problem.failing_config) == (ProblemStatus.PARKED, bad.key if bad else "")
    assert "3 rounds in a row" in problem.reason
    assert "was silent" in problem.reason
    assert results.progress(fleet.store, campaign.id).campaign.status is CampaignStatus.FINISHED


def test_suspects_that_are_all_cleared_cost_the_problem_nothing(fleet: Fleet) -> None:
    campaign = fleet.campaign(PROBLEMS[:1])
    first = fleet.hand(0)
    task = first.claimed()
    first.announce(task, first.begin(task).propose())
    fleet.fall_silent()
    second = fleet.hand(1)
    fleet.sweeper.sweep()
    sizes = []
    while (task := second.claimed()).only:
        sizes.append(len(task.only))
        configs = [FAMILY.config(dict(p.split("=") for p in key.partition(":")[2].split(","))) for key in task.only]
        second.begin(task)
        second.report(task, [measured(config, time_of(config), PROBLEMS[0]) for config in configs])
    assert sizes == [4, 4, 3, 3, 2]
    second.work(task)
    problem = results.problems(fleet.store, campaign.id)[0]
    assert (problem.status, problem.attempts, problem.tried) == (ProblemStatus.DONE, 0, 20)


def test_suspects_that_another_campaign_has_cleared_are_no_failure(fleet: Fleet) -> None:
    campaign, hand = fleet.campaign(PROBLEMS[:1]), fleet.hand()
    task = hand.claimed()
    hand.announce(task, hand.begin(task).propose())
    hand.report(task, failure="the device was lost")
    fleet.campaign(PROBLEMS[:1], priority=1)
    hand.work(hand.claimed())
    task = hand.claimed()
    assert task.only
    assert set(task.only) <= {entry.config.key for entry in hand.begin(task).tried}
    hand.report(task)
    assert results.problems(fleet.store, campaign.id)[0].attempts == 0
    assert hand.claimed().only == ()


def test_a_round_that_ends_a_study_that_it_never_began_ends_none(fleet: Fleet) -> None:
    campaign, hand = fleet.campaign(PROBLEMS[:1]), fleet.hand()
    task = hand.claimed()
    fleet.rounds.finish(task.round_id, task.lease, RoundReport(ended="planted"))
    assert results.problems(fleet.store, campaign.id)[0].status is ProblemStatus.WAITING
    assert hand.claimed().problem_key == task.problem_key


def test_a_round_that_can_not_go_on_keeps_what_it_measured(fleet: Fleet) -> None:
    campaign, hand = fleet.campaign(PROBLEMS[:1]), fleet.hand()
    task = hand.claimed()
    batch = hand.begin(task).propose()
    hand.announce(task, batch)
    hand.report(task, [measured(c, time_of(c), PROBLEMS[0]) for c in batch[:5]], failure="the GPU process died")
    problem = results.problems(fleet.store, campaign.id)[0]
    assert (problem.status, problem.attempts, problem.tried) == (ProblemStatus.WAITING, 1, 5)
    assert set(hand.claimed().only) <= {config.key for config in batch[5:]}


def test_a_problem_without_a_correct_candidate_is_parked(fleet: Fleet) -> None:
    campaign, hand = fleet.campaign(PROBLEMS[:1]), fleet.hand()
    task = hand.claimed()
    batch = hand.begin(task).propose()
    hand.report(task, [failing(config, PROBLEMS[0]) for config in batch], ended="tried")
    problem = results.problems(fleet.store, campaign.id)[0]
    assert (problem.status, problem.reason) == (ProblemStatus.PARKED, "nothing correct: 16 timeout")
    assert results.summary(fleet.store, campaign.id).parked == {"nothing correct": 1}
    assert fleet.store.bests() == []


def test_rounds_that_measure_nothing_do_not_go_on_for_ever(fleet: Fleet) -> None:
    campaign, hand = fleet.campaign(PROBLEMS[:1]), fleet.hand()
    for _ in range(3):
        task = hand.claimed()
        hand.begin(task)
        hand.report(task)
    assert hand.claim() is None
    assert "measured nothing" in results.problems(fleet.store, campaign.id)[0].reason


def test_a_worker_that_is_told_to_stop_hands_its_round_back(fleet: Fleet) -> None:
    campaign, hand = fleet.campaign(PROBLEMS[:1]), fleet.hand()
    for _ in range(4):
        task = hand.claimed()
        hand.begin(task)
        hand.report(task, handed_back=True)
    problem = results.problems(fleet.store, campaign.id)[0]
    assert (problem.status, problem.attempts, problem.rounds) == (ProblemStatus.WAITING, 0, 4)


def test_pause_resume_and_cancel(fleet: Fleet) -> None:
    campaign, hand = fleet.campaign(), fleet.hand()
    task = hand.claimed()
    fleet.campaigns.pause(campaign.id)
    assert not fleet.workers.beat(hand.id, task.round_id).stop
    hand.work(task)
    assert hand.claim() is None
    fleet.sweeper.sweep()
    assert statuses(fleet, campaign.id) == {"done": 1, "waiting": 5}
    fleet.campaigns.resume(campaign.id)
    task = hand.claimed()
    batch = hand.begin(task).propose()
    fleet.campaigns.cancel(campaign.id)
    assert fleet.workers.beat(hand.id, task.round_id).stop
    hand.report(task, [measured(c, time_of(c), PROBLEMS[1]) for c in batch[:3]], handed_back=True)
    assert hand.claim() is None
    fleet.sweeper.sweep()
    assert statuses(fleet, campaign.id) == {"done": 1, "skipped": 5}
    # Measurements stay.
    assert results.problems(fleet.store, campaign.id)[1].tried == 3


def test_two_campaigns_never_run_one_problem_at_once(fleet: Fleet) -> None:
    fleet.campaign(PROBLEMS[:2])
    second = fleet.campaign(PROBLEMS[:2])
    hands = [fleet.hand(number) for number in range(3)]
    tasks = [hand.claim() for hand in hands]
    assert [task.problem_key if task else None for task in tasks] == [PROBLEMS[0].key, PROBLEMS[1].key, None]
    hands[0].work(hands[0].claimed())
    task = hands[2].claimed()
    assert task.problem_key == PROBLEMS[0].key
    # The study has finished: the second campaign gets its answer without a measurement.
    hands[2].begin(task)
    hands[2].report(task, ended="the budget of 20 candidates is spent")
    assert results.problems(fleet.store, second.id)[0].status is ProblemStatus.DONE


def test_higher_priorities_go_first(fleet: Fleet) -> None:
    fleet.campaign(PROBLEMS[:1])
    fleet.campaign(PROBLEMS[1:2], priority=5)
    assert fleet.hand().claimed().problem_key == PROBLEMS[1].key


def test_a_paused_or_cancelled_campaign_does_not_hold_up_the_next(fleet: Fleet) -> None:
    many = [Gemm.parse(f"{64 * m}x256x256") for m in range(1, 101)]
    first, second = fleet.campaign(many), fleet.campaign(many)
    fleet.campaign(PROBLEMS[:1], priority=-1)
    fleet.campaigns.pause(first.id)
    fleet.campaigns.cancel(second.id)
    hand = fleet.hand()
    assert hand.work(hand.claimed())
    assert hand.claim() is None
    fleet.campaigns.resume(first.id)
    assert hand.claimed().problem_key == many[0].key


def test_gpu_time_that_is_spent_ends_with_finals_of_what_was_begun(fleet: Fleet) -> None:
    campaign = fleet.campaign(budget=CampaignBudget(candidates=50, rounds=11, gpu_seconds=0.05))
    hand = fleet.hand()
    task = hand.claimed()
    batch = hand.begin(task).propose()
    time.sleep(0.1)
    hand.report(task, [measured(config, time_of(config), PROBLEMS[0]) for config in batch])
    fleet.sweeper.sweep()
    assert statuses(fleet, campaign.id) == {"waiting": 1, "skipped": 5}
    task = hand.claimed()
    assert task.candidates == 16
    assert hand.work(task) == []
    fleet.sweeper.sweep()
    ended = results.progress(fleet.store, campaign.id).campaign
    assert (ended.status, ended.stopped_because) == (CampaignStatus.FINISHED, "the campaign's GPU time is spent")
    assert statuses(fleet, campaign.id) == {"done": 1, "skipped": 5}


class TestWorkers:
    def test_one_worker_a_gpu(self, fleet: Fleet) -> None:
        first = fleet.hand()
        with pytest.raises(SlotTaken, match="GPU-0"):
            fleet.workers.register("other", facts(0))
        fleet.fall_silent()
        fleet.sweeper.sweep()
        second = fleet.workers.register("other", facts(0))
        assert [worker.id for worker in fleet.workers.page()] == [second.worker_id]
        assert {worker.id: worker.status for worker in fleet.workers.page(gone=True)}[first.id] == "gone"

    def test_recorded_devices_are_told_apart_by_name(self, fleet: Fleet) -> None:
        replay = type(facts())(**{**facts_of(), "kind": "recorded", "uuid": "digest"})
        fleet.workers.register("one", replay)
        fleet.workers.register("two", replay)
        with pytest.raises(SlotTaken, match="one"):
            fleet.workers.register("one", replay)

    def test_a_recorded_worker_screens_under_its_recordings_policy(self, fleet: Fleet) -> None:
        fleet.campaign(devices=((DEVICE, "recorded"),))
        replay = replace(facts(), kind="recorded", screening=Policy.SUSTAINED)
        task = fleet.rounds.claim(fleet.workers.register("replay", replay).worker_id)
        assert task is not None
        fleet.rounds.begin(task.round_id, task.lease, provenance())
        rows = [measured(FAMILY.config({}), problem=problem_from_key(task.problem_key), policy=policy)
                for policy in (Policy.BURST, Policy.SUSTAINED)]  # fmt: skip
        with pytest.raises(ResultRefused, match="screens under sustained"):
            fleet.rounds.finish(task.round_id, task.lease, RoundReport((rows[0],), provenance(), 0.0))
        fleet.rounds.finish(task.round_id, task.lease, RoundReport((rows[1],), provenance(), 0.0))
        assert replace(replay, kind="cuda").screens_under is Policy.BURST

    def test_a_draining_worker_gets_no_more(self, fleet: Fleet) -> None:
        fleet.campaign()
        hand = fleet.hand()
        task = hand.claimed()
        assert fleet.workers.drain(hand.id).status == "draining"
        assert fleet.workers.beat(hand.id, task.round_id).drain
        with pytest.raises(FleetError, match="report it before"):
            fleet.workers.leave(hand.id)
        hand.work(task)
        assert hand.claim() is None
        fleet.workers.leave(hand.id)
        fleet.workers.leave(hand.id)
        assert fleet.workers.page() == []

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"arch": "sm_90"}, "sm_90a"),
            ({"arch": "sm_100a"}, "built for"),
            ({"name": "NVIDIA B200"}, "sm_100a"),
            ({"sm_count": 200}, "132 SMs"),
            ({"name": ""}, "device name"),
            ({"uuid": "x" * 100}, "device uuid"),
        ],
    )
    def test_facts_that_can_not_be_are_refused(self, fleet: Fleet, change: dict[str, object], said: str) -> None:
        with pytest.raises((FleetError, ValueError), match=said):
            fleet.workers.register("liar", type(facts())(**{**facts_of(), **change}))  # type: ignore[arg-type]
        assert fleet.store.counts()["worker"] == 0


def facts_of() -> dict[str, object]:
    found = facts()
    return {name: getattr(found, name) for name in type(found).__dataclass_fields__}


class TestReports:
    """A report is validated completely before any of it is stored."""

    @pytest.mark.parametrize(
        ("spoil", "said"),
        [
            (lambda m: replace(m, problem_key=PROBLEMS[3].key), "the round is of"),
            (lambda m: replace(m, config=FAMILY.config({"tile_n": 256, "stages": 16})), "illegal"),
            (lambda m: replace(m, config=replace(m.config, values=(("tile_m", 64),))), "knobs"),
            (lambda m: replace(m, config=replace(m.config, family="cublaslt")), "sm90_wgmma and gemv compete"),
            (lambda m: replace(m, samples_us=(1e-6, 1e-6, 1e-6)), "roofline"),
            (lambda m: replace(m, samples_us=(1.0, float("inf"))), "positive"),
            (lambda m: replace(m, verification=replace(m.verification, elements=5)), "elements"),
            (lambda m: replace(m, verification=replace(m.verification, worst_ratio=float("nan"))), "worst_ratio = nan"),
            (lambda m: replace(m, detail="x" * 10_000), "longer"),
            (lambda m: replace(m, build_digest="../../x"), "SHA-256"),
        ],
    )
    def test_a_measurement_that_can_not_be_is_refused(self, fleet: Fleet, spoil, said: str) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
        fleet.campaign(PROBLEMS[:1])
        hand = fleet.hand()
        task = hand.claimed()
        batch = hand.begin(task).propose()
        good = [measured(config, time_of(config), PROBLEMS[0]) for config in batch[:3]]
        with pytest.raises(ResultRefused, match=said):
            hand.report(task, [*good[:2], spoil(good[2])])
        assert fleet.store.counts()["measurement"] == 0
        # It is still the worker's round.
        hand.report(task, good)

    def test_a_repeated_config_and_a_foreign_device_are_refused(self, fleet: Fleet) -> None:
        fleet.campaign(PROBLEMS[:1])
        hand = fleet.hand()
        task = hand.claimed()
        batch = hand.begin(task).propose()
        with pytest.raises(ResultRefused, match="twice"):
            hand.report(task, [measured(batch[0], 30.0, PROBLEMS[0])] * 2)
        hand.number = 3
        with pytest.raises(ResultRefused, match="GPU-3"):
            hand.report(task, [measured(batch[0], 30.0, PROBLEMS[0])])
        with pytest.raises(ResultRefused, match="GPU-3"):
            hand.begin(task)

    def test_an_illegal_announcement_is_refused(self, fleet: Fleet) -> None:
        fleet.campaign(PROBLEMS[:1])
        hand = fleet.hand()
        task = hand.claimed()
        with pytest.raises(ResultRefused, match="illegal"):
            hand.announce(task, [FAMILY.config({"tile_n": 256, "stages": 16})])

    def test_a_wrong_kernel_is_stored_and_never_served(self, fleet: Fleet) -> None:
        fleet.campaign(PROBLEMS[:1])
        hand = fleet.hand()
        task = hand.claimed()
        batch = hand.begin(task).propose()
        hand.report(task, [failing(batch[0], PROBLEMS[0], Outcome.WRONG_RESULT)], ended="tried")
        assert (fleet.store.counts()["measurement"], fleet.store.bests()) == (1, [])


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
