"""GPU time is charged for what a round can have taken, whatever clocks say, and finals are compared if it can have
measured them, on both kinds of database.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from tests.fleet import PROBLEMS, Fleet
from tests.support import FACTS, FAMILY, measured
from tuner.errors import ResultRefused
from tuner.fleet.campaigns import reports, results
from tuner.fleet.campaigns.checks import FEW_SAMPLES, MOST_RIVALS, MOST_SAMPLES, SAMPLES_OF_A_TURN, check_finals
from tuner.fleet.campaigns.clock import now
from tuner.fleet.campaigns.records import CampaignBudget, RoundReport
from tuner.fleet.campaigns.reports import LONGEST_SECONDS
from tuner.fleet.campaigns.workers import LiveWorker, touch
from workers.cuda.finals import BURSTS
from workers.cuda.outputs import SLOTS
from workers.cuda.regimes import BRIEF, LONG, SHORT
from workers.cuda.timing import StoppingRule
from workers.measurement import Measurement, Policy

#: The host slept, the clock was set, or all services were away.
NIGHT: Final = timedelta(hours=12)


@pytest.mark.parametrize(("busy_seconds", "charged"), [(1.0, LONGEST_SECONDS), (3_000.0, 3_000.0)])
def test_a_round_costs_what_rounds_take_or_its_worker_says(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, busy_seconds: float, charged: float
) -> None:
    def later(*given: Any, **named: Any) -> LiveWorker:  # noqa: ANN401
        worker = touch(*given, **named)
        return worker._replace(at=worker.at + NIGHT)

    campaign, hand = fleet.campaign(PROBLEMS[:1]), fleet.hand()
    task = hand.claimed()
    monkeypatch.setattr("tuner.fleet.campaigns.rounds.touch", later)
    fleet.rounds.finish(task.round_id, task.lease, RoundReport(busy_seconds=busy_seconds, failure="planted"))
    assert results.progress(fleet.store, campaign.id).gpu_seconds == charged
    assert fleet.workers.page()[0].busy_seconds == busy_seconds


def test_a_round_whose_worker_died_while_nobody_listened_costs_what_was_heard_of_it(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign, hand = fleet.campaign(PROBLEMS[:1]), fleet.hand()
    hand.claimed()
    silence = fleet.timing.silence_seconds
    # Last heard so long after its claim, in the evening.
    fleet.pass_time(-silence - 60)
    monkeypatch.setattr("tuner.fleet.campaigns.sweep.now", lambda session: now(session) + NIGHT)
    assert fleet.sweeper.sweep()["workers lost"] == 1
    assert results.progress(fleet.store, campaign.id).gpu_seconds == pytest.approx(60 + 2 * silence, abs=1)


@pytest.mark.parametrize("policy", Policy)
def test_finals_with_more_samples_than_the_budget_has_turns_are_not_compared(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, policy: Policy
) -> None:
    fleet.campaign(PROBLEMS[:1], budget=CampaignBudget(candidates=20, rounds=30))
    hand = fleet.hand()
    task = hand.claimed()
    hand.begin(task)

    def final(samples: int) -> Measurement:
        return replace(measured(FAMILY.config({}), 20.0, PROBLEMS[0], "final", samples=samples), policy=policy)

    with monkeypatch.context() as context:
        context.setattr(reports, "verdict", None)
        with pytest.raises(ResultRefused, match=r"91 samples under .*: finals of 30 turns take at most 90; report"):
            hand.report(task, [final(91)])
    hand.report(task, [final(90)])


def test_more_rivals_than_finals_have_are_refused() -> None:
    rivals = [measured(FAMILY.config({}), 20.0, PROBLEMS[0], "final")] * (MOST_RIVALS + 1)
    check_finals(rivals[:MOST_RIVALS], FACTS, 30)
    check_finals([*rivals[1:], *(replace(one, stage="screen") for one in rivals)], FACTS, 30)
    check_finals([*rivals[1:], *(replace(one, policy=Policy.SUSTAINED) for one in rivals[1:])], FACTS, 30)
    with pytest.raises(ResultRefused, match=r"65 finals under .*: a round has at most 64 rivals"):
        check_finals(rivals, FACTS, 30)


def test_recorded_finals_have_the_turns_of_their_recording() -> None:
    final = measured(FAMILY.config({}), 20.0, PROBLEMS[0], "final", samples=MOST_SAMPLES)
    check_finals([final], replace(FACTS, kind="recorded"), 5)


def test_what_finals_take_at_most_is_accepted() -> None:
    assert SLOTS <= MOST_RIVALS
    for turns in (5, 30, 1_000):
        assert StoppingRule.of(turns).most_turns <= SAMPLES_OF_A_TURN * turns
    assert max(BURSTS, *(pace.passes for pace in (BRIEF, SHORT, LONG))) <= FEW_SAMPLES
