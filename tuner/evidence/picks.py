"""Picks: which of several correct measurements wins under each policy, deterministically.

The library's candidate wins unless one of ours is surely faster. Under any policy that shows what a user gets, what is
served is surely slower than the library's first choice by at most 1 %, and by half of what it gains where the policy
decides.

Noise breaks no tie. Under `sustained`, whose few blocks repeat within 0.3 %, ours that are at most 1 % behind the
fastest of them tie, and the library's that are at most 0.5 % behind the fastest of these: the first in the order of the
finals wins, which is the order that the search expects, or that of the library's heuristics. Two rivals are compared
over the passes that both took part in. Under other policies rivals within the tie band of the fastest are ordered by
these, each where those before it are equal:

1. how much slower they are, in steps of half a percent; 0 unless they are slower turn by turn
2. how much slower they are under `burst`, the policy that repeats best, in the same steps
3. the analytic estimate; of the library's, which have none, the order of the finals
4. the family's enumeration order
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from space.config import Config
from space.devices import find_profile
from space.family import family_named, is_own
from space.problem import Problem
from space.rank import power_decides
from tuner.errors import NothingCorrect
from tuner.evidence.legality import forbidden_among
from tuner.evidence.records import Best, Ratio, StoredMeasurement
from tuner.evidence.stats import by_turn, ratio, scatter_of
from workers.measurement import Measurement, Outcome, Policy

#: Rivals this close to the fastest tie with it.
TIE_BAND: Final = 0.02
#: Rivals this close to the fastest tie with it under `sustained`. Ratios to the library's first choice are 0.4 % apart
#: from tune to tune (rms, benchmarks/results/tuned_twice_h100.md), two rasters of one kernel by less.
SUSTAINED_TIE: Final = 0.01
#: Step that ranks rivals within the tie band. The library's tie within one under `sustained`, where its second takes
#: part if it is near: in a wider band two tunes named two of them, as different ones had come second by bursts.
STEP: Final = 0.005
#: A winner is surely slower than the library's first choice by at most this share of its time under `DEPLOYED`, and by
#: this part of what it gains under the policy that decides.
SLOWER, OF_GAIN = 0.01, 0.5
#: Why one of ours is not picked, however fast.
LEFT_OUT: Final = "is not surely faster than the library's, or loses too much to its first choice under another policy"
#: The family of the library that users already have.
LIBRARY: Final = "cublaslt"
#: Policies that show what a user gets, and under which a config and the library's first choice are compared.
DEPLOYED: Final = (Policy.SUSTAINED, Policy.BURST, Policy.CHAIN)


@lru_cache(maxsize=4096)
def precedence(problem: Problem, device: str) -> tuple[Policy, ...]:
    """Policies in the order of precedence: the first measured one decides what is served."""
    if power_decides(problem, find_profile(device)):
        return Policy.SUSTAINED, Policy.BURST, Policy.CHAIN, Policy.ROUNDS, Policy.CHAIN_PDL
    return Policy.CHAIN, Policy.SUSTAINED, Policy.BURST, Policy.ROUNDS, Policy.CHAIN_PDL


def bests_of(problem: Problem, finals: Sequence[StoredMeasurement], tried: int, failed: dict[str, int]) -> list[Best]:
    """The winner under each policy, with its evidence; the served one comes first.

    Args:
        finals: of one problem on one device, in the order in which they were measured. Within each policy, the
            library's come last, its first choice before others.
        tried, failed: of the screening before.

    Raises:
        NothingCorrect: no finalist is correct, and legal today.
    """
    correct = [entry for entry in finals if entry.measurement.outcome is Outcome.CORRECT]
    if not correct:
        reasons = "; ".join(sorted({entry.measurement.detail for entry in finals}))
        reasons = reasons or "every one's build was found wrong before"
        raise NothingCorrect(f"none of the finalists is correct when measured again: {reasons}")
    # Finals may be older than a rule.
    broken = forbidden_among(problem, (entry.measurement.config for entry in correct), correct[0].device)
    legal = [entry for entry in correct if entry.measurement.config not in broken]
    if not legal:
        raise NothingCorrect(f"rules forbid every finalist by now: {', '.join(sorted(set(broken.values())))}")
    rivals = Rivals(problem, legal[0].device, [entry.measurement for entry in legal])
    bests: list[Best] = []
    for policy in precedence(problem, rivals.device):
        if rivals.under(policy):
            won = rivals.winner(policy)
            (winner,) = (entry for entry in legal if entry.measurement is won)
            bests.append(_best(rivals, winner, tried, failed, served=not bests))
    return bests


def pick(rivals: Iterable[Measurement], problem: Problem, device: str) -> Measurement:
    """The winner among correct measurements of one problem on one device, of one stage and policy.

    Raises:
        ValueError: none of them is correct.
    """
    correct = [rival for rival in rivals if rival.outcome is Outcome.CORRECT]
    if not correct:
        raise ValueError("no rival is correct: nothing can win")
    return Rivals(problem, device, correct).winner(correct[0].policy)


class Rivals:
    """All rivals of one problem on one device, with their measurements under every policy.

    Attributes:
        device: GPU model.
    """

    def __init__(self, problem: Problem, device: str, measurements: Sequence[Measurement]) -> None:
        self.problem, self.device = problem, device
        self._by_policy: dict[Policy, dict[str, Measurement]] = {}
        for one in measurements:
            self._by_policy.setdefault(one.policy, {})[one.config.key] = one

    def under(self, policy: Policy) -> list[Measurement]:
        """The measurements under one policy, the library's last."""
        return list(self._by_policy.get(policy, {}).values())

    def winner(self, policy: Policy) -> Measurement:
        """The winner under one policy."""
        rivals = self.under(policy)
        own = [rival for rival in rivals if is_own(rival.config)]
        library = [rival for rival in rivals if not is_own(rival.config)]
        if not library:
            return self._first(own)
        # Where every one loses somewhere, the first choice of those that are left is served.
        theirs = [rival for rival in library if not self._loses_somewhere(rival)] or library[:1]
        # Judged before a tie is broken, and by the fastest: in a tie another may come first.
        fastest = ahead(theirs)[0]
        ours = [
            rival for rival in own
            if versus(fastest, rival, self.device).low > 1 and not self._loses_somewhere(rival)
        ]  # fmt: skip
        return self._first(ours or theirs)

    def _loses_somewhere(self, rival: Measurement) -> bool:
        """Whether it is slower than the library's first choice under some policy, by more than its gain excuses."""
        most = min(SLOWER, OF_GAIN * self._gain(rival))
        for policy in DEPLOYED:
            one = self._by_policy.get(policy, {}).get(rival.config.key)
            first = self._first_choice(policy)
            if one is None or first is None or one is first:
                continue
            behind = versus(one, first, self.device)
            if behind.low > 1 and behind.value > 1 + most:
                return True
        return False

    def _first_choice(self, policy: Policy) -> Measurement | None:
        """The library's, where it was measured under a policy."""
        return next((one for one in self.under(policy) if not is_own(one.config)), None)

    def _gain(self, rival: Measurement) -> float:
        """How much faster it is than the library's first choice, as a share of its time; 0 where it is slower."""
        return max(versus(self._first_choice(rival.policy) or rival, rival, self.device).value - 1, 0.0)

    def _first(self, rivals: Sequence[Measurement]) -> Measurement:
        """The first of rivals under one policy, as this module's docstring says."""
        stands = standings(rivals, self.device)
        tied = [place for place, one in enumerate(stands) if one.tied]
        own = is_own(rivals[0].config)
        if rivals[0].policy is Policy.SUSTAINED:
            return next(rivals[place] for place in tied if own or stands[place].behind <= STEP)
        bursts = self._behind_in_bursts(rivals)
        # An algorithm's number says nothing of its speed; its place in the heuristics' list does.
        estimates = _estimates_us(self.problem, self.device, rivals) if own else range(len(rivals))

        def order(place: int) -> tuple[int, int, float, str, tuple[int, ...]]:
            one, config = stands[place], rivals[place].config
            steps = int(one.behind / STEP) if one.surely else 0
            return steps, bursts[place], estimates[place], config.family, enumeration_order(config)

        return rivals[min(tied, key=order)]

    def _behind_in_bursts(self, rivals: Sequence[Measurement]) -> list[int]:
        """Steps that each rival is behind the fastest under `burst`; 0 where it was not measured."""
        bursts = self._by_policy.get(Policy.BURST, {})
        times = [bursts[rival.config.key].median_us if rival.config.key in bursts else None for rival in rivals]
        fastest = min((time for time in times if time is not None), default=0.0)
        return [int((time / fastest - 1) / STEP) if time is not None else 0 for time in times]


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a rival stands.

    Attributes:
        behind: how much slower than the fastest, relative to its time.
        surely: whether its samples show it to be slower at all.
    """

    measurement: Measurement
    behind: float
    surely: bool

    @property
    def tied(self) -> bool:
        """Whether it ties with the fastest."""
        policy = self.measurement.policy
        return self.behind <= tie_band(policy) or (policy is not Policy.SUSTAINED and not self.surely)


def tie_band(policy: Policy) -> float:
    """How far behind the fastest a rival ties with it, as a share of its time."""
    return SUSTAINED_TIE if policy is Policy.SUSTAINED else TIE_BAND


def standings(correct: Sequence[Measurement], device: str) -> list[Standing]:
    """Each rival compared with the fastest, turn by turn: at the power limit, turns differ more than rivals do."""
    typical = _shares(correct)
    first = min(range(len(correct)), key=lambda place: (typical[place], correct[place].config.key))
    ratios = [versus(rival, correct[first], device) for rival in correct]
    return [
        Standing(rival, max(one.value - 1, 0.0), one.low > 1) for rival, one in zip(correct, ratios, strict=True)
    ]


def _shares(rivals: Sequence[Measurement]) -> list[float]:
    """Each rival's time as a share of one that all are compared with.

    Under `sustained` that is the fastest of those with the most blocks: who fell behind early has no blocks of the
    later passes, in which the card may be slower.
    """
    if rivals[0].policy is not Policy.SUSTAINED:
        return [statistics.median(shares) for shares in by_turn([rival.samples_us for rival in rivals])]
    last = min(rivals, key=lambda rival: (-len(rival.samples_us), rival.median_us))
    pairs = (zip(*paired(rival, last), strict=True) for rival in rivals)
    return [statistics.median(ours / theirs for ours, theirs in pair) for pair in pairs]


def ahead(rivals: Sequence[Measurement]) -> list[Measurement]:
    """Rivals under one policy, fastest first, turn by turn; equal ones as they are enumerated."""
    shares = _shares(rivals)
    order = sorted(range(len(rivals)), key=lambda place: (shares[place], enumeration_order(rivals[place].config)))
    return [rivals[place] for place in order]


def paired(one: Measurement, other: Measurement) -> tuple[Sequence[float], Sequence[float]]:
    """Samples of two measurements under one policy; under `sustained`, those of blocks that both took part in."""
    if one.policy is not Policy.SUSTAINED:
        return one.samples_us, other.samples_us
    count = min(len(one.samples_us), len(other.samples_us))
    return one.samples_us[:count], other.samples_us[:count]


def versus(baseline: Measurement, ours: Measurement, device: str, *, one_run: bool = True) -> Ratio:
    """How many times as fast as a baseline, by two measurements under one policy.

    Args:
        one_run: whether both were taken in the same finals.
    """
    theirs, own = paired(baseline, ours) if one_run else (baseline.samples_us, ours.samples_us)
    return _ratio(tuple(theirs), tuple(own), scatter_of(ours.policy, ours.problem_key, device), one_run)


@lru_cache(maxsize=128)
def _ratio(baseline_us: tuple[float, ...], ours_us: tuple[float, ...], scatter: float, one_run: bool) -> Ratio:
    """`stats.ratio`: winners under each policy ask for the same ones under the others, and resampling takes long."""
    return ratio(baseline_us, ours_us, scatter, one_run=one_run)


def enumeration_order(config: Config) -> tuple[int, ...]:
    """A config's position in its family's enumeration: a sort key that depends on the config alone."""
    return tuple(knob.domain.index(config[knob.name]) for knob in family_named(config.family).knobs)


def _best(rivals: Rivals, winner: StoredMeasurement, tried: int, failed: dict[str, int], *, served: bool) -> Best:
    won = winner.measurement
    measured = rivals.under(won.policy)
    library = [rival for rival in measured if not is_own(rival.config)]
    by_time = ahead(measured)
    return Best(
        rivals.problem, rivals.device, winner.device_kind, winner,
        versus_first=_versus(library[:1], won, rivals.device),
        versus_best=_versus(library, won, rivals.device),
        runner_up=next((rival.config for rival in by_time if rival is not won), None), tried=tried, failed=failed,
        served=served,
    )  # fmt: skip


def _versus(library: Sequence[Measurement], winner: Measurement, device: str) -> Ratio | None:
    """Ratio to the fastest of the library, as the winner's turns show it; None without the library."""
    ratios = (versus(rival, winner, device) for rival in library)
    return min(ratios, key=lambda found: found.value, default=None)


def _estimates_us(problem: Problem, device: str, rivals: Sequence[Measurement]) -> list[float]:
    """Analytic estimates, rounded; all 0 on a device without a profile."""
    profile = find_profile(device)
    if profile is None:
        return [0.0] * len(rivals)
    made = []
    for rival in rivals:
        family = family_named(rival.config.family)
        made.append(family.estimate_us(family.columns(problem, [rival.config], profile), profile)[0])
    return [round(float(time_us), 3) for time_us in made]
