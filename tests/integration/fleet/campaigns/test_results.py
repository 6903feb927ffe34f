"""What a campaign says of itself is of its own problems and rounds alone, on both kinds of database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import sqlalchemy as sa

from space.kind import problem_from_key
from space.kinds.gemm import Gemm
from tests.fleet import BY_HAND, PROBLEMS, Fleet, Hand, failing
from tuner.evidence.campaign_models import CampaignProblemRow, RoundRow
from tuner.evidence.models import ProblemRow
from tuner.fleet.campaigns import results
from tuner.fleet.campaigns.records import Campaign, CampaignStatus, ProblemStatus


def fail(hand: Hand) -> int:
    """Ends a problem whose candidates all fail, in every attempt; their number."""
    for _ in range(BY_HAND.attempts):
        task = hand.claimed()
        batch, problem = hand.begin(task).propose(), problem_from_key(task.problem_key)
        assert isinstance(problem, Gemm)
        hand.report(task, [failing(config, problem) for config in batch], ended="tried")
    return len(batch)


def test_campaigns_do_not_count_each_others_problems(fleet: Fleet) -> None:
    first, hand = fleet.campaign(PROBLEMS[:1]), fleet.hand()
    tried = len(hand.work(hand.claimed()))
    second = fleet.campaign(PROBLEMS[1:4], counts=(1, 2, 3))
    timeouts = fail(hand)
    hand.begin(hand.claimed())
    of_first, of_second = (results.summary(fleet.store, each.id) for each in (first, second))
    assert of_first.progress.problems == {"waiting": 0, "open": 0, "done": 1, "parked": 0, "skipped": 0}
    assert of_second.progress.problems == {"waiting": 1, "open": 1, "done": 0, "parked": 1, "skipped": 0}
    assert (of_first.progress.tried, of_second.progress.tried) == (tried, timeouts)
    # Not counted as left: what has been tried of problems that have ended.
    assert of_second.progress.most_candidates == timeouts + 2 * 20
    assert (of_first.failed, of_second.failed) == ({}, {"timeout": timeouts})
    assert (of_first.parked, of_second.parked) == ({}, {"nothing correct": 1})
    assert (of_first.progress.rounds_running, of_second.progress.rounds_running) == (0, 1)
    assert of_first.gain is not None
    assert (of_first.gain.problems, of_second.gain) == (1, None)
    # The first one was given no counts.
    assert of_first.won is None
    assert [progress.campaign.id for progress in results.newest(fleet.store, 1)] == [second.id]


def test_what_an_open_problem_has_tried_is_not_left(fleet: Fleet) -> None:
    campaign, hand = fleet.campaign(PROBLEMS[:1]), fleet.hand()
    task = hand.claimed()
    batch = hand.begin(task).propose()
    hand.report(task, [failing(config, PROBLEMS[0]) for config in batch])
    for problem in ("waiting", "open"):
        stands = results.progress(fleet.store, campaign.id)
        assert (stands.problems[problem], stands.tried, stands.most_candidates) == (1, len(batch), 20)
        hand.claim()


def test_campaigns_are_listed_in_both_orders_and_by_status(fleet: Fleet) -> None:
    first, second, third = (fleet.campaign(PROBLEMS[place : place + 1]).id for place in range(3))
    fleet.campaigns.pause(second)

    page = fleet.campaigns.page
    assert numbers(page(after=first)) == [second, third]
    assert numbers(page(limit=2)) == [first, second]
    assert numbers(page(newest=True, limit=2)) == [third, second]
    assert numbers(page(newest=True, after=second)) == [first]
    for newest in (False, True):
        assert numbers(page(status=CampaignStatus.PAUSED, newest=newest)) == [second]


def numbers(campaigns: Sequence[Campaign]) -> list[int]:
    return [campaign.id for campaign in campaigns]


def test_only_workers_that_live_on_a_campaigns_cards_count_as_its_own(fleet: Fleet) -> None:
    campaign = fleet.campaign(PROBLEMS[:1])
    elsewhere = replace(fleet.hand(1).device.facts, uuid="GPU-9", name="NVIDIA H100 80GB HBM3", sm_count=132)
    fleet.workers.register("elsewhere", elsewhere)
    fleet.workers.leave(fleet.hand(2).id)
    assert results.progress(fleet.store, campaign.id).workers == 1


def test_a_rate_is_of_recent_rounds_of_the_campaign(fleet: Fleet) -> None:
    first, hand = fleet.campaign(PROBLEMS[:1]), fleet.hand()
    hand.work(hand.claimed())
    second = fleet.campaign(PROBLEMS[1:3])
    assert results.progress(fleet.store, first.id).candidates_a_second
    assert results.progress(fleet.store, second.id).candidates_a_second is None
    hand.work(hand.claimed())
    running = results.progress(fleet.store, second.id)
    assert running.candidates_a_second
    assert running.seconds_left is not None
    fleet.campaigns.pause(second.id)
    paused = results.progress(fleet.store, second.id)
    assert (paused.campaign.status, paused.seconds_left) == (CampaignStatus.PAUSED, None)
    with fleet.store.transaction(writes=True) as session:
        for row in session.scalars(sa.select(RoundRow)):
            assert row.ended_at is not None
            row.ended_at -= timedelta(minutes=6)
    assert results.progress(fleet.store, second.id).candidates_a_second is None


def test_problems_are_asked_by_page_status_and_time(fleet: Fleet) -> None:
    fleet.campaign(PROBLEMS[3:5])
    campaign, hand = fleet.campaign(PROBLEMS[:3], priority=1), fleet.hand()
    hand.work(hand.claimed())
    fail(hand)
    all_three = results.problems(fleet.store, campaign.id)
    assert [each.problem for each in all_three] == list(PROBLEMS[:3])
    first, second, _ = all_three
    assert results.problems(fleet.store, campaign.id, after=first.id, limit=1) == [second]
    assert results.problems(fleet.store, campaign.id, status=ProblemStatus.DONE) == [first]
    # Who asks since the last that was seen gets it again: another may have ended at the same moment.
    assert results.problems(fleet.store, campaign.id, since=second.ended_at) == [second]
    assert results.problems(fleet.store, campaign.id, since=first.ended_at) == [first, second]


def test_problems_that_only_a_newer_version_reads_are_left_out_of_pages(fleet: Fleet) -> None:
    fleet.campaign(PROBLEMS[2:3])
    campaign = fleet.campaign(PROBLEMS[:2])
    with fleet.store.transaction(writes=True) as session:
        newer = [ProblemRow(key=key, m=1, n=1, k=1, kind=key.partition(":")[0], fields={})
                 for key in ("sparse_gemm:bf16:64", PROBLEMS[0].key.replace("bf16", "fp2"))]  # fmt: skip
        session.add_all(newer)
        session.flush()
        known = session.scalars(sa.select(ProblemRow).where(ProblemRow.key == PROBLEMS[2].key)).one()
        ours = sa.select(CampaignProblemRow).where(CampaignProblemRow.campaign_id == campaign.id)
        like = session.scalars(ours.limit(1)).one()
        names = {*sa.inspect(CampaignProblemRow).columns.keys()} - {"id", "problem_id"}
        same = {name: getattr(like, name) for name in names}
        session.add_all(CampaignProblemRow(**same, problem_id=each.id) for each in (*newer, known))
    first, second, third = results.problems(fleet.store, campaign.id)
    assert [each.problem for each in (first, second, third)] == [*PROBLEMS[:3]]
    assert results.problems(fleet.store, campaign.id, limit=3) == [first, second, third]
    assert results.problems(fleet.store, campaign.id, second.id, limit=1) == [third]
