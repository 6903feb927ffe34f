"""What a sweep changes is of its campaign and its status alone, on both kinds of database."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from unittest.mock import Mock

import pytest
import sqlalchemy as sa

from tests.fleet import BY_HAND, PROBLEMS, Fleet, time_of
from tests.support import measured
from tuner.errors import StoreError
from tuner.evidence.campaign_models import CampaignProblemRow
from tuner.evidence.store import Store
from tuner.fleet.campaigns import sweep
from tuner.fleet.campaigns.clock import now
from tuner.fleet.campaigns.records import CampaignBudget, CampaignStatus

SPENT = CampaignBudget(candidates=50, rounds=11, gpu_seconds=1.0)


def spend(fleet: Fleet, campaign_id: int, seconds: float) -> None:
    """Charges GPU time to a campaign's first problem."""
    item = sa.select(sa.func.min(CampaignProblemRow.id)).where(CampaignProblemRow.campaign_id == campaign_id)
    with fleet.store.transaction(writes=True) as session:
        row = sa.update(CampaignProblemRow).where(CampaignProblemRow.id == item.scalar_subquery())
        session.execute(row.values(gpu_seconds=seconds))


def test_a_round_that_runs_when_the_gpu_time_is_spent_goes_on(fleet: Fleet) -> None:
    campaign, hand, other = fleet.campaign(PROBLEMS[:3], budget=SPENT), fleet.hand(0), fleet.hand(1)
    task = hand.claimed()
    batch = hand.begin(task).propose()
    running = other.claimed()
    other.begin(running)
    hand.report(task, [measured(config, time_of(config), PROBLEMS[0]) for config in batch])
    spend(fleet, campaign.id, 1.0)
    fleet.sweeper.sweep()
    assert fleet.statuses(campaign.id) == {"waiting": 1, "open": 1, "skipped": 1}
    # Asked again, it is the same round with its whole budget.
    assert other.claimed() == running
    other.work(running)
    assert fleet.statuses(campaign.id) == {"waiting": 1, "done": 1, "skipped": 1}


def test_a_campaign_that_does_not_run_keeps_its_problems(fleet: Fleet) -> None:
    campaign = fleet.campaign(PROBLEMS[:2], budget=SPENT)
    spend(fleet, campaign.id, 2.0)
    fleet.campaigns.pause(campaign.id)
    fleet.sweeper.sweep()
    assert fleet.statuses(campaign.id) == {"waiting": 2}
    fleet.campaigns.resume(campaign.id)
    fleet.sweeper.sweep()
    assert fleet.statuses(campaign.id) == {"skipped": 2}


def test_a_campaign_ends_with_its_own_last_problem_and_its_own_reason(fleet: Fleet) -> None:
    spent = fleet.campaign(PROBLEMS[:1], budget=SPENT)
    spend(fleet, spent.id, 2.0)
    fleet.sweeper.sweep()
    campaign, hand = fleet.campaign(PROBLEMS[1:2]), fleet.hand()
    task = hand.claimed()
    fleet.sweeper.sweep()
    assert fleet.campaigns.get(campaign.id).status is CampaignStatus.RUNNING
    hand.work(task)
    fleet.sweeper.sweep()
    ended = [fleet.campaigns.get(each.id) for each in (spent, campaign)]
    assert [each.status for each in ended] == [CampaignStatus.FINISHED] * 2
    assert [each.stopped_because for each in ended] == [
        "the campaign's GPU time is spent", "every problem has ended",
    ]  # fmt: skip


def test_a_campaign_that_was_paused_in_its_last_round_ends_with_it(fleet: Fleet) -> None:
    campaign, hand = fleet.campaign(PROBLEMS[:1]), fleet.hand()
    task = hand.claimed()
    fleet.campaigns.pause(campaign.id)
    fleet.sweeper.sweep()
    assert fleet.campaigns.get(campaign.id).status is CampaignStatus.PAUSED
    hand.work(task)
    fleet.sweeper.sweep()
    ended = fleet.campaigns.get(campaign.id)
    assert (ended.status, ended.stopped_because) == (CampaignStatus.FINISHED, "every problem has ended")


def lost_after_listening(fleet: Fleet) -> int:
    """The workers that are lost while a service hears nobody for as long as one may be silent."""
    for _ in range(3):
        fleet.clock += BY_HAND.heartbeat_seconds
        lost = fleet.sweeper.sweep()["workers lost"]
    return lost


def test_time_without_a_service_counts_against_no_worker(fleet: Fleet) -> None:
    fleet.hand()
    fleet.pass_time(3_600)
    fleet.clock += 3_600
    assert fleet.sweeper.sweep()["workers lost"] == 0
    assert lost_after_listening(fleet) == 1


def test_a_pause_between_two_heartbeats_counts_against_no_worker(fleet: Fleet) -> None:
    """Of the machine that all of them are on, and shorter than a worker may be silent."""
    fleet.hand()
    fleet.sweeper.sweep()
    pause = BY_HAND.silence_seconds - 1
    fleet.pass_time(BY_HAND.heartbeat_seconds + pause)
    fleet.clock += pause
    assert fleet.sweeper.sweep()["workers lost"] == 0
    assert lost_after_listening(fleet) == 1


def test_silence_counts_anew_once_the_database_answers_again(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.hand()
    fleet.fall_silent()
    with monkeypatch.context() as down:
        down.setattr(fleet.store, "transaction", Mock(side_effect=StoreError("the database does not answer")))
        with pytest.raises(StoreError):
            fleet.sweeper.sweep()
    assert fleet.sweeper.sweep()["workers lost"] == 0
    assert lost_after_listening(fleet) == 1


def test_silence_does_not_count_while_heartbeats_wait_for_another_writer(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store, ThreadPoolExecutor(1) as pool:
        fleet, began = Fleet(store), threading.Event()

        def clock() -> float:
            began.set()
            return fleet.clock

        fleet.hand()
        fleet.fall_silent()
        fleet.sweeper._clock = clock
        with store.transaction(writes=True) as session:
            session.connection()
            swept = pool.submit(fleet.sweeper.sweep)
            assert began.wait(60)
            fleet.clock += BY_HAND.heartbeat_seconds
        assert swept.result()["workers lost"] == 0
        assert lost_after_listening(fleet) == 1


@pytest.mark.parametrize("hours", [1, -1], ids=["forward", "back"])
def test_silence_counts_anew_after_the_databases_clock_was_set(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    fleet.hand()
    fleet.sweeper.sweep()
    # Heartbeats from before have times of the other clock.
    fleet.pass_time(3_600 * hours)
    set_to = timedelta(hours=hours)
    monkeypatch.setattr("tuner.fleet.campaigns.sweep.now", lambda session: now(session) + set_to)
    assert fleet.sweeper.sweep()["workers lost"] == 0
    assert lost_after_listening(fleet) == 1


@pytest.mark.parametrize(("seconds", "lost"), [(0.0, 1), (BY_HAND.heartbeat_seconds, 0)], ids=["refuses", "hangs"])
def test_a_step_that_always_fails_keeps_no_round_of_a_lost_worker(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, seconds: float, lost: int
) -> None:
    fleet.campaign(PROBLEMS[:1])
    fleet.hand().claimed()

    def fails(*_: object) -> Counter[str]:
        fleet.clock += seconds
        raise StoreError("permission denied for table deleted_rounds")

    monkeypatch.setattr("tuner.fleet.campaigns.sweep.delete_old", fails)
    for _ in range(3):
        with pytest.raises(StoreError):
            fleet.sweeper.sweep()
    fleet.fall_silent()
    with pytest.raises(StoreError):
        fleet.sweeper.sweep()
    # While the database hangs, nobody hears the workers.
    assert len(fleet.workers.page()) == 1 - lost


def skipped_while_resting(fleet: Fleet, campaign_id: int, monkeypatch: pytest.MonkeyPatch, ended: bool) -> list[int]:
    """How many problems of a campaign are skipped at each pause of a sweep."""
    seen = list[int]()

    def rest() -> bool:
        seen.append(fleet.statuses(campaign_id).get("skipped", 0))
        return ended and seen[-1] > 0

    monkeypatch.setattr(fleet.sweeper, "_rest", rest)
    fleet.sweeper.sweep()
    return sorted({count for count in seen if count})


@pytest.mark.parametrize("ended", [False, True], ids=["runs", "stops"])
def test_many_problems_are_skipped_a_part_in_each_transaction(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    monkeypatch.setattr(sweep, "CHANGED_AT_ONCE", 2)
    campaign = fleet.campaign(PROBLEMS[:5])
    fleet.campaigns.cancel(campaign.id)
    # A service that is told to stop does not finish them all first.
    assert skipped_while_resting(fleet, campaign.id, monkeypatch, ended) == ([2] if ended else [2, 4, 5])


@pytest.mark.parametrize("usable", [True, False], ids=["refuses", "is away"])
@pytest.mark.parametrize("error", [StoreError("the server was silent for 12 s"), ValueError("a defect")], ids=str)
def test_a_step_that_fails_skips_the_others_only_where_the_database_is_away(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, error: Exception, usable: bool
) -> None:
    ending, cancelled = fleet.campaign(PROBLEMS[:1]), fleet.campaign(PROBLEMS[1:3])
    hand = fleet.hand()
    hand.work(hand.claimed())
    fleet.campaigns.cancel(cancelled.id)
    monkeypatch.setattr(fleet.sweeper, "_skip", Mock(side_effect=error))
    if not usable:
        monkeypatch.setattr(fleet.store, "check_writable", Mock(side_effect=StoreError("the database is away")))
    with pytest.raises(type(error), match=str(error)):
        fleet.sweeper.sweep()
    assert (fleet.campaigns.get(ending.id).status is CampaignStatus.FINISHED) == usable


def test_what_several_steps_said_is_told_of_each(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fleet.campaign(PROBLEMS[:1])
    monkeypatch.setattr(fleet.sweeper, "_skip", Mock(side_effect=StoreError("one")))
    monkeypatch.setattr(fleet.sweeper, "_spend_budgets", Mock(side_effect=StoreError("two")))
    with pytest.raises(StoreError, match="one"):
        fleet.sweeper.sweep()
    said = [record.getMessage() for record in caplog.records if record.name == "gemmtune.maintenance"]
    assert said == ["a step of a sweep failed: two"]


def test_a_database_that_is_away_is_told_once_until_a_sweep_succeeds(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    away, defect = StoreError("the database is away"), ValueError("a defect")
    outcomes = iter([away, away, Counter[str](), away, defect, defect, away])
    over = threading.Event()

    def swept(_: sweep.Sweeper) -> Counter[str]:
        outcome = next(outcomes, None)
        if outcome is None:
            over.set()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome or Counter()

    monkeypatch.setattr(sweep.Sweeper, "sweep", swept)
    monkeypatch.setattr(sweep.Sweeper, "pause_seconds", 0.001)
    with sweep.Maintenance(fleet.store, BY_HAND):
        assert over.wait(60)
    said = [record.getMessage() for record in caplog.records if record.name == "gemmtune.maintenance"]
    refused = "a step of a sweep failed: the database is away"
    assert said == [refused, refused, "a sweep failed"]


def test_a_service_that_ends_waits_neither_for_a_step_behind_a_lock_nor_for_another_look_at_the_database(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, unlocked, looks = threading.Event(), threading.Event(), Mock()

    def locked(_: sweep.Sweeper) -> bool:
        begun.set()
        unlocked.wait(60)
        raise StoreError("another process has locked it")

    monkeypatch.setattr(sweep.Sweeper, "_settle_revocations", locked)
    monkeypatch.setattr(sweep.Sweeper, "_usable", looks)
    monkeypatch.setattr(sweep, "_END_SECONDS", 0.01)
    maintenance = sweep.Maintenance(fleet.store, BY_HAND)
    with maintenance:
        assert begun.wait(60)
    assert maintenance._thread.is_alive()
    unlocked.set()
    maintenance._thread.join(60)
    assert not looks.called
