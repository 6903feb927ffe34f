"""Whose round comes next: campaigns that pause, wait, outrank each other, or have spent their time."""

from __future__ import annotations

import time

from sqlalchemy import update

from space.kinds.gemm import Gemm
from tests.fleet import PROBLEMS, Fleet, time_of
from tests.support import measured
from tuner.evidence.campaign_models import CampaignRow
from tuner.fleet.campaigns import results
from tuner.fleet.campaigns.records import CampaignBudget, CampaignStatus, ProblemStatus


def test_pause_resume_and_cancel(fleet: Fleet) -> None:
    campaign, hand = fleet.campaign(), fleet.hand()
    task = hand.claimed()
    fleet.campaigns.pause(campaign.id)
    assert not fleet.workers.beat(hand.id, task.round_id).stop
    hand.work(task)
    assert hand.claim() is None
    fleet.sweeper.sweep()
    assert fleet.statuses(campaign.id) == {"done": 1, "waiting": 5}
    fleet.campaigns.resume(campaign.id)
    task = hand.claimed()
    batch = hand.begin(task).propose()
    fleet.campaigns.cancel(campaign.id)
    assert fleet.workers.beat(hand.id, task.round_id).stop
    hand.report(task, [measured(c, time_of(c), PROBLEMS[1]) for c in batch[:3]], handed_back=True)
    assert hand.claim() is None
    fleet.sweeper.sweep()
    assert fleet.statuses(campaign.id) == {"done": 1, "skipped": 5}
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


def test_a_campaign_that_was_paused_goes_behind_others_where_an_engine_queues(fleet: Fleet) -> None:
    first, second = fleet.campaign(PROBLEMS[:1]), fleet.campaign(PROBLEMS[1:2])
    fleet.campaigns.pause(first.id)
    fleet.campaigns.resume(first.id)
    # On SQLite older campaigns go first, paused or not.
    expected = first if fleet.store.embedded else second
    assert results.problems(fleet.store, expected.id)[0].problem.key == fleet.hand().claimed().problem_key


def test_gpu_time_that_is_spent_ends_with_finals_of_what_was_begun(fleet: Fleet) -> None:
    campaign = fleet.campaign(budget=CampaignBudget(candidates=50, rounds=11, gpu_seconds=0.05))
    hand = fleet.hand()
    task = hand.claimed()
    batch = hand.begin(task).propose()
    time.sleep(0.1)
    hand.report(task, [measured(config, time_of(config), PROBLEMS[0]) for config in batch])
    fleet.sweeper.sweep()
    assert fleet.statuses(campaign.id) == {"waiting": 1, "skipped": 5}
    task = hand.claimed()
    assert task.candidates == 16
    assert hand.work(task) == []
    fleet.sweeper.sweep()
    ended = results.progress(fleet.store, campaign.id).campaign
    assert (ended.status, ended.stopped_because) == (CampaignStatus.FINISHED, "the campaign's GPU time is spent")
    assert fleet.statuses(campaign.id) == {"done": 1, "skipped": 5}
    assert {problem.reason for problem in results.problems(fleet.store, campaign.id)} == {ended.stopped_because}


def test_a_newer_versions_budget_is_read_as_far_as_it_is_known(fleet: Fleet) -> None:
    campaign, hand = fleet.campaign(PROBLEMS[:1]), fleet.hand()
    with fleet.store.transaction(writes=True) as session:
        session.execute(update(CampaignRow).values(budget={"candidates": 20, "rounds": 11, "joules": 1e6}))
    assert fleet.campaigns.get(campaign.id).budget == CampaignBudget(candidates=20, rounds=11)
    hand.work(hand.claimed())
    assert fleet.statuses(campaign.id) == {"done": 1}
