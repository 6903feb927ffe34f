"""Estimates: what a campaign would cost, before it is created."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

import numpy as np
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from space.devices import DeviceProfile, find_profile, reference_profile
from space.enumerate import enumerate_space
from space.family import families_for
from space.problem import Problem
from space.rank import may_reach_power_limit
from tuner.evidence.campaign_models import RoundRow, WorkerRow
from tuner.evidence.store import Store
from tuner.fleet.campaigns.campaigns import queue_for
from tuner.fleet.campaigns.records import CampaignRequest

#: Before anything was measured: seconds of a candidate's screening, and of a problem's preparation and finals, where
#: power may limit the clock and elsewhere. On H100s 70 and 24 problems of 48 candidates took 27 and 8 s (means), and
#: eight of ten of them a quarter less to a quarter more (`tune_seconds` in benchmarks/results/parts/).
ASSUMED_CANDIDATE_SECONDS: Final = 0.04
ASSUMED_LIMITED_SECONDS, ASSUMED_PROBLEM_SECONDS = 25.0, 6.0
_ASSUMED_RANGE: Final = (0.75, 1.25)
#: Rounds between these shares of the recent ones give the range of a measured rate.
_LEAST_SHARE, _MOST_SHARE = 0.1, 0.9
#: Newest rounds that give a rate, and the fewest that suffice.
_RECENT_ROUNDS: Final = 500
_LEAST_ROUNDS: Final = 5
#: Spaces that are enumerated, on all devices together: of the first problem, the last, and others evenly between.
_LOOKED_AT: Final = 200
#: Why replays of a GPU model lack a problem, by the model's name and the problem's key.
Unrecorded: TypeAlias = Mapping[tuple[str, str], str]
ALL_RECORDED: Final[Unrecorded] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a campaign would cost.

    Attributes:
        problems, devices: their numbers; every problem is tuned on every device.
        most_candidates: upper bound on the candidates measured.
        looked_at: number of problems whose candidates were counted on every device, spread over the list.
        untunable: those of them without any legal config on a device, with the rules, or that its replays lack.
        gpu_seconds: total of all workers, at most the budget's; `gpu_seconds_low` and `gpu_seconds_high` are the same
            at the 10th and 90th percentile of the rates of rounds, recent or assumed.
        seconds: wall-clock time with the workers that are live now, one per problem at most; None if a device has none.
        seconds_a_candidate, seconds_a_problem: rates used.
        rate_source: `measured` by recent rounds on these devices, or `assumed`.
    """

    problems: int
    devices: int
    most_candidates: int
    untunable: list[dict[str, str]]
    looked_at: int
    gpu_seconds: float
    gpu_seconds_low: float
    gpu_seconds_high: float
    seconds: float | None
    workers: int
    seconds_a_candidate: float
    seconds_a_problem: float
    rate_source: Literal["measured", "assumed"]


@dataclass(frozen=True, slots=True)
class _QueueRate:
    """GPU seconds per candidate on one queue: of all recent rounds together, and of fast and slow ones."""

    usual: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class _Rates:
    """GPU seconds that a campaign's work takes.

    Attributes:
        a_candidate, a_problem: of each candidate, and of each problem beside its candidates.
        low, high: factors of both, where rounds are fast and where they are slow.
    """

    a_candidate: float
    a_problem: float
    low: float
    high: float
    source: Literal["measured", "assumed"]


@dataclass(frozen=True, slots=True)
class _Counted:
    """The legal candidates of a problem on a card; without any, the rules that removed most, or why none."""

    problem: Problem
    card: DeviceProfile
    candidates: int
    rules: str


def estimate(
    store: Store, request: CampaignRequest, here: int = 0, unrecorded: Unrecorded = ALL_RECORDED
) -> Estimate:
    """The cost of a campaign, without creating it.

    Args:
        here: workers on each device that join only when the campaign is run.
        unrecorded: what the recorded devices will park, which costs nothing.

    Raises:
        CampaignError: an unknown device.
    """
    with store.transaction() as session:
        queues = [queue_for(session, name, kind) for name, kind in request.devices]
        measured = [rate for queue in queues if (rate := _rate(session, queue))]
        live = _live_workers(session, queues, here)
    cards = [
        find_profile(name) or reference_profile(queue.split("/")[-2])
        for (name, _), queue in zip(request.devices, queues, strict=True)
    ]
    looked_at = _sample(request.problems, max(_LOOKED_AT // len(cards), 2))
    counted = _counted(looked_at, request.devices, cards, unrecorded)
    rates = _measured_rates(measured) if measured else _assumed_rates(counted)
    each = len(request.problems) * len(request.devices)
    most = round(each * statistics.fmean(min(one.candidates, request.budget.candidates) for one in counted))
    total, budget = most * rates.a_candidate + each * rates.a_problem, request.budget.gpu_seconds or math.inf
    gpu_seconds = min(total, budget)
    return Estimate(
        problems=len(request.problems),
        devices=len(request.devices),
        most_candidates=most,
        untunable=_untunable(counted, several=len(cards) > 1),
        looked_at=len(looked_at),
        gpu_seconds=gpu_seconds,
        gpu_seconds_low=min(total * rates.low, budget),
        gpu_seconds_high=min(total * rates.high, budget),
        seconds=_wall_seconds(gpu_seconds, [min(live[queue], len(request.problems)) for queue in queues]),
        workers=sum(live.values()),
        seconds_a_candidate=rates.a_candidate,
        seconds_a_problem=rates.a_problem,
        rate_source=rates.source,
    )


def _live_workers(session: Session, queues: list[str], here: int) -> Counter[str]:
    """The workers of each queue: those that are live, and `here` more."""
    of_queue = select(WorkerRow.queue, func.count()).where(WorkerRow.status == "live", WorkerRow.queue.in_(queues))
    live = Counter(dict.fromkeys(queues, here))
    live.update({queue: count for queue, count in session.execute(of_queue.group_by(WorkerRow.queue))})
    return live


def _wall_seconds(gpu_seconds: float, at_once: list[int]) -> float | None:
    """The time until the slowest device is done; None if one of them has no worker.

    Args:
        at_once: problems that are tuned at the same time, by device.
    """
    return gpu_seconds / len(at_once) / min(at_once) if all(at_once) else None


def _rate(session: Session, queue: str) -> _QueueRate | None:
    """The rate of recent rounds, preparation and finals included; None after too few rounds."""
    recent = (
        select(RoundRow.measured, RoundRow.busy_seconds)
        .where(RoundRow.queue == queue, RoundRow.status == "done")
        .order_by(RoundRow.id.desc())
        .limit(_RECENT_ROUNDS)
    )
    rounds = session.execute(recent).all()
    screened = [row for row in rounds if row.measured]
    if len(screened) < _LEAST_ROUNDS:
        return None
    # Rounds of finals alone take time, too.
    usual = sum(float(row.busy_seconds) for row in rounds) / sum(row.measured for row in screened)
    each = [float(row.busy_seconds) / row.measured for row in screened]
    low, high = (float(share) for share in np.quantile(each, (_LEAST_SHARE, _MOST_SHARE)))
    return _QueueRate(usual, min(low, usual), max(high, usual))


def _measured_rates(measured: list[_QueueRate]) -> _Rates:
    """The means over queues; these rates include what a problem takes beside its candidates."""
    usual = statistics.fmean(rate.usual for rate in measured)
    low, high = _ASSUMED_RANGE
    if usual:
        low = statistics.fmean(rate.low for rate in measured) / usual
        high = statistics.fmean(rate.high for rate in measured) / usual
    return _Rates(usual, 0.0, low, high, "measured")


def _assumed_rates(counted: list[_Counted]) -> _Rates:
    a_problem = statistics.fmean(_assumed_seconds(one.problem, one.card) if one.candidates else 0.0 for one in counted)
    return _Rates(ASSUMED_CANDIDATE_SECONDS, a_problem, *_ASSUMED_RANGE, "assumed")


def _assumed_seconds(problem: Problem, device: DeviceProfile) -> float:
    return ASSUMED_LIMITED_SECONDS if may_reach_power_limit(problem, device) else ASSUMED_PROBLEM_SECONDS


def _sample(problems: tuple[Problem, ...], most: int) -> list[Problem]:
    if len(problems) <= most:
        return list(problems)
    step = (len(problems) - 1) / (most - 1)
    return [problems[round(place * step)] for place in range(most)]


def _counted(
    problems: list[Problem], devices: tuple[tuple[str, str], ...], cards: list[DeviceProfile], unrecorded: Unrecorded
) -> list[_Counted]:
    # A card's candidates are counted once, though its replays are another device.
    sizes = dict[tuple[Problem, str], tuple[int, str]]()
    counted = []
    for (name, kind), card in zip(devices, cards, strict=True):
        for problem in problems:
            why = unrecorded.get((name, problem.key)) if kind == "recorded" else None
            if not why and (problem, card.name) not in sizes:
                sizes[problem, card.name] = _candidates(problem, card)
            counted.append(_Counted(problem, card, *((0, why) if why else sizes[problem, card.name])))
    return counted


def _untunable(counted: list[_Counted], *, several: bool) -> list[dict[str, str]]:
    """The problems without candidates, with the rules.

    Args:
        several: whether the rules have to name the device, too.
    """
    return [
        {"problem": one.problem.key,
         "rules": f"{one.rules} on {one.card.name}" if several and one.card.name not in one.rules else one.rules}
        for one in counted if not one.candidates
    ]  # fmt: skip


def _candidates(problem: Problem, device: DeviceProfile) -> tuple[int, str]:
    """Number of legal candidates; where there are none, the rules that removed most."""
    spaces = [enumerate_space(family, problem, device) for family in families_for(device.arch.name, problem)]
    count = sum(map(len, spaces))
    return count, "" if count else spaces[0].removed_most
