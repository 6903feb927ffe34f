"""Rounds that end badly: silent workers, suspects, problems that are parked."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import update

from tests.fleet import PROBLEMS, Fleet, Hand, failing, time_of
from tests.support import FAMILY, measured
from tuner.errors import LeaseLost, WorkerGone
from tuner.evidence.campaign_models import CampaignProblemRow
from tuner.fleet.campaigns import results, sweep
from tuner.fleet.campaigns.clock import now
from tuner.fleet.campaigns.records import CampaignStatus, ProblemStatus, RoundReport
from workers.measurement import Measurement, Outcome


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
    for _ in range(4):
        fleet.clock += fleet.timing.silence_seconds / 4
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


def test_finals_that_end_the_round_that_screened_their_finalist_name_it(fleet: Fleet) -> None:
    campaign, hand = fleet.campaign(PROBLEMS[:1]), fleet.hand()
    for _ in range(2):
        hand.report(hand.claimed(), failure="it can't be prepared")
    task = hand.claimed()
    search, taken = hand.begin(task), list[Measurement]()
    while batch := search.propose():
        hand.announce(task, batch)
        for config in batch:
            taken.append(measured(config, time_of(config), PROBLEMS[0]))
            search.tell(taken[-1])
    (finalist,) = search.finalists(task.finalists)
    hand.announce(task, [finalist], "final")
    hand.report(task, taken, failure="the GPU process died")
    problem = results.problems(fleet.store, campaign.id)[0]
    assert (problem.status, problem.failing_config) == (ProblemStatus.PARKED, finalist.key)
    assert f"the last in the finals of {finalist.key}: the GPU process died" in problem.reason


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
    # Each attempt measures anew, in two rounds: the first, which only measures, is no success that is worth another.
    for attempt in range(fleet.timing.attempts):
        problem = results.problems(fleet.store, campaign.id)[0]
        assert (problem.status, problem.attempts) == (ProblemStatus.WAITING, attempt)
        for ended in ("", "tried"):
            task = hand.claimed()
            batch = hand.begin(task).propose()
            hand.report(task, [failing(config, PROBLEMS[0]) for config in batch], ended=ended)
    problem = results.problems(fleet.store, campaign.id)[0]
    assert (problem.status, problem.reason) == (ProblemStatus.PARKED, "nothing correct: 20 timeout")
    assert results.summary(fleet.store, campaign.id).parked == {"nothing correct": 1}
    assert fleet.store.bests() == []
    assert hand.claim() is None


def spoil(fleet: Fleet, hand: Hand) -> None:
    """One round of a GPU that computes everything wrong."""
    task = hand.claimed()
    batch = hand.begin(task).propose()
    hand.report(task, [failing(config, PROBLEMS[0], Outcome.WRONG_RESULT) for config in batch], ended="tried")


def test_another_worker_finds_what_one_that_gets_everything_wrong_did_not(fleet: Fleet) -> None:
    campaign, bad, good = fleet.campaign(PROBLEMS[:1]), fleet.hand(0), fleet.hand(1)
    spoil(fleet, bad)
    assert len(good.work(good.claimed())) == 20
    problem = results.problems(fleet.store, campaign.id)[0]
    assert (problem.status, problem.attempts, problem.failed) == (ProblemStatus.DONE, 0, {})


def test_a_new_campaign_measures_anew_what_was_parked_without_anything_correct(fleet: Fleet) -> None:
    fleet.campaign(PROBLEMS[:1])
    bad, good = fleet.hand(0), fleet.hand(1)
    for _ in range(fleet.timing.attempts):
        spoil(fleet, bad)
    assert good.claim() is None
    again = fleet.campaign(PROBLEMS[:1])
    assert len(good.work(good.claimed())) == 20
    assert results.problems(fleet.store, again.id)[0].status is ProblemStatus.DONE


def test_a_spent_campaign_does_not_try_again_what_had_nothing_correct(fleet: Fleet) -> None:
    campaign, hand = fleet.campaign(PROBLEMS[:1]), fleet.hand()
    with fleet.store.transaction(writes=True) as session:
        session.execute(update(CampaignProblemRow).values(closing=True))
    spoil(fleet, hand)
    assert results.problems(fleet.store, campaign.id)[0].status is ProblemStatus.PARKED


def test_a_spent_campaign_does_not_screen_anew_as_many_as_were_not_correct(fleet: Fleet) -> None:
    campaign, hand = fleet.campaign(PROBLEMS[:1]), fleet.hand()
    spoil(fleet, hand)
    with fleet.store.transaction(writes=True) as session:
        session.execute(update(CampaignProblemRow).values(closing=True))
    assert len(hand.work(hand.claimed())) == 1
    assert results.problems(fleet.store, campaign.id)[0].status is ProblemStatus.DONE


def test_a_spent_campaign_does_not_look_for_a_candidate_that_ended_a_round(fleet: Fleet) -> None:
    campaign, hand = fleet.campaign(PROBLEMS[:1]), fleet.hand()
    task = hand.claimed()
    batch = hand.begin(task).propose()
    hand.announce(task, batch)
    taken = [measured(config, time_of(config), PROBLEMS[0]) for config in batch[:4]]
    hand.report(task, taken, failure="the device was lost")
    with fleet.store.transaction(writes=True) as session:
        session.execute(update(CampaignProblemRow).values(closing=True))
    task = hand.claimed()
    assert task.only == ()
    assert hand.work(task) == []
    problem = results.problems(fleet.store, campaign.id)[0]
    assert (problem.status, problem.tried) == (ProblemStatus.DONE, 4)


def test_a_worker_that_calls_a_problem_hopeless_without_a_study_is_not_the_last_to_try(fleet: Fleet) -> None:
    campaign, hand, _ = fleet.campaign(PROBLEMS[:2]), fleet.hand(0), fleet.hand(1)
    for attempt in range(fleet.timing.attempts):
        assert results.problems(fleet.store, campaign.id)[0].attempts == attempt
        hand.report(hand.claimed(), failure="no config is legal", hopeless=True)
    problem, _ = results.problems(fleet.store, campaign.id)
    assert (problem.status, problem.reason) == (ProblemStatus.PARKED, "no config is legal")
    # Whoever has begun the study knows the problem.
    task = hand.claimed()
    hand.begin(task)
    hand.report(task, failure="nothing is recorded", hopeless=True)
    assert results.problems(fleet.store, campaign.id)[1].status is ProblemStatus.PARKED


def test_the_only_worker_is_not_asked_again_for_what_it_calls_hopeless(fleet: Fleet) -> None:
    campaign, hand, leaving = fleet.campaign(PROBLEMS[:2]), fleet.hand(0), fleet.hand(1)
    fleet.workers.drain(leaving.id)
    hand.report(hand.claimed(), failure="nothing is recorded", hopeless=True)
    problem, _ = results.problems(fleet.store, campaign.id)
    assert (problem.status, problem.rounds, problem.reason) == (ProblemStatus.PARKED, 1, "nothing is recorded")
    assert hand.claimed().problem_key == PROBLEMS[1].key


def test_a_study_that_is_always_ended_without_its_finals_is_parked(fleet: Fleet) -> None:
    campaign, hand = fleet.campaign(PROBLEMS[:1]), fleet.hand()
    task = hand.claimed()
    batch = hand.begin(task).propose()
    taken = [measured(config, time_of(config), PROBLEMS[0]) for config in batch]
    hand.report(task, taken, ended="tried")
    for _ in range(fleet.timing.attempts - 1):
        task = hand.claimed()
        hand.begin(task)
        hand.report(task, ended="tried")
    assert hand.claim() is None
    assert "without its finals" in results.problems(fleet.store, campaign.id)[0].reason


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
