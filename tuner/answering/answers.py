"""Answers: the best config for a problem on a device, and where it comes from.

Order of preference: `measured`, `recorded`, `nearest`, `predicted`. An untuned shape is neither an error nor a silent
guess: every answer names its source and its evidence, and its config is legal at the requested shape. If no config is
legal, the answer says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Literal, Protocol

from space.config import Config
from space.devices import DeviceProfile, arch_measured, cards_called, find_profile, unknown_device
from space.enumerate import Space, enumerate_space
from space.errors import FamilyError, ProfileError, SpaceError
from space.explain import is_legal
from space.families.common import bare_twin, early_twin
from space.family import family_for, family_named
from space.plug import Family
from space.problem import Problem
from space.rank import rank, roofline_us
from tuner.answering.grounds import expected, taken
from tuner.answering.neighbours import Judge, Neighbour, best_neighbour
from tuner.answering.staleness import changed_since
from tuner.counts import counted
from tuner.evidence.legality import forbidden
from tuner.evidence.picks import precedence
from tuner.evidence.records import Best
from tuner.evidence.stats import median_interval_us
from tuner.prediction.expectation import ANALYTIC_HIGH, ANALYTIC_LOW
from tuner.prediction.learned import LearnedModel
from tuner.prediction.portfolio import first_choice
from workers.measurement import SCREENING, Policy

Source = Literal["measured", "stale", "recorded", "nearest", "predicted", "none"]

#: Sources whose times were measured for exactly the problem, verified.
MEASURED: Final = ("measured", "stale", "recorded")


@dataclass(frozen=True, slots=True)
class Answer:
    """The config to run, with its source and evidence.

    Attributes:
        policy: what the time stands for.
        source: origin of `config`; `stale` if it was measured and its kernel has changed since, `none` if no config of
            any family is legal.
        time_us: measured median for `MEASURED` sources, estimate otherwise; None if unknown.
        best: evidence: the best itself for `MEASURED` sources, the neighbour's best for `nearest`.
        why: one sentence about the source.
        interval_us: 95 % interval of the median for `MEASURED` sources, 90 % interval of the estimate otherwise; None
            if unknown.
        grounds: sentences that say what the estimate and its interval are based on.
    """

    problem: Problem
    device: str
    policy: Policy
    source: Source
    config: Config | None
    time_us: float | None
    best: Best | None
    why: str
    interval_us: tuple[float, float] | None = None
    grounds: tuple[str, ...] = ()

    @property
    def tflops(self) -> float | None:
        """TFLOP/s at `time_us`."""
        return self.problem.tflops(self.time_us) if self.time_us else None


class ExactBests(Protocol):
    """A source of answers for the very problems that it has: recordings."""

    def best(self, problem: Problem, device: str, policy: Policy | None = None) -> Best | None:
        """The best of one problem on a device model under a policy, or the served one."""


class Bests(ExactBests, Protocol):
    """A source of measured answers for other problems too: the store, or a service's copy of it in memory."""

    def neighbours(self, problem: Problem, device: str, policy: Policy | None = None) -> Iterable[Best]:
        """Bests whose problems differ from `problem` in their extents alone, nearest first: of each the one under a
        policy, else the served one."""

    def wrong(self, problem: Problem, device: str) -> Set[str]:
        """Texts of the configs that were found wrong on a problem and a device model."""


def answer(
    bests: Bests, problem: Problem, device: str, policy: Policy | None = None, model: LearnedModel | None = None,
    recordings: ExactBests | None = None,
) -> Answer:  # fmt: skip
    """The best known config for `problem` on a device.

    Args:
        device: the card's name, or a common name for it (`space.devices.profile_named` lists them).
        policy: the timing policy; by default the one that decides what is served. Without a measurement under it, the
            answer has another policy's, and says so.
        model: learned model of the device, or of one with the same multiprocessors; without one the analytic model
            predicts.
        recordings: bests of recordings, which answer if `bests` lacks the problem.

    Raises:
        ProfileError: the device is unknown.
    """
    known, broken = _known(bests, problem, device, policy, recordings)
    if known:
        return known
    found = _unmeasured(bests, problem, device, policy, model)
    return _instead(found, broken) if broken else found


def _unmeasured(
    bests: Bests, problem: Problem, device: str, policy: Policy | None, model: LearnedModel | None
) -> Answer:
    """The answer from what was measured elsewhere, or from nothing."""
    profile = find_profile(device)
    if profile is None and cards_called(device):
        raise unknown_device(device)
    if profile is None:
        raise ProfileError(f"{unknown_device(device)}; what was measured on an unknown card is stored, never served")
    device, named = profile.name, policy
    policy = policy or precedence(problem, device)[0]
    if problem.min_bytes > profile.memory_bytes:
        needs = f"the operands take {problem.min_bytes / 2**30:,.0f} GiB"
        return _none(problem, device, policy, f"{needs}, {device} has {profile.memory_bytes / 2**30:,.0f} GiB")
    try:
        family = family_for(profile.arch.name, problem)
    except FamilyError as error:
        return _none(problem, device, policy, f"{device} is {profile.arch.name}: {error}")
    wrong = bests.wrong(problem, device)
    asked = _Question(problem, profile, family, policy, model.on(device) if model else None, wrong)
    wanted = (policy, *precedence(problem, device))
    neighbour = best_neighbour(bests.neighbours(problem, device, named), problem, asked.judge, wanted, wrong)
    if neighbour and asked.model is None:
        return asked.nearest(neighbour)
    predicted = asked.predicted()
    if neighbour and not (predicted and asked.judge.outweighs(predicted.config, neighbour, problem)):
        return asked.nearest(neighbour)
    return asked.from_prediction(predicted, neighbour)


def known_answer(
    bests: Bests, problem: Problem, device: str, policy: Policy | None = None, recordings: ExactBests | None = None
) -> Answer | None:
    """The answer that needs no model: `problem` itself was measured or recorded, and no rule forbids its config by now.

    Arguments are those of `answer`.
    """
    return _known(bests, problem, device, policy, recordings)[0]


def _known(
    bests: Bests, problem: Problem, device: str, policy: Policy | None, recordings: ExactBests | None
) -> tuple[Answer | None, str]:
    """The known answer; and without one the rule that the winner in `bests` breaks by now, empty if it has none."""
    profile = find_profile(device)
    device, broken = profile.name if profile else device, ""
    for source, told in ((bests, measured), (recordings, recorded)):
        for asked in dict.fromkeys((policy, None)):
            best = source.best(problem, device, asked) if source else None
            if best is None:
                continue
            if not (rule := forbidden(problem, best.config, device)):
                found = told(best)
                if broken:
                    return _instead(found, broken), ""
                return (found if policy in (None, best.policy) else _under_another(found, policy)), ""
            if source is bests:
                broken = rule
    return None, broken


def policy_of(policy: Policy | None, neighbours: str) -> Policy | None:
    """The policy that a question asks for.

    Args:
        neighbours: `plain`, or `pdl` where the kernels around the product let the next one start early.

    Raises:
        SpaceError: `policy` times a product that has no such neighbours.
    """
    if neighbours != "pdl":
        return policy
    if policy not in (None, Policy.CHAIN, Policy.CHAIN_PDL):
        raise SpaceError(
            f"policy {policy} and neighbours pdl contradict each other: under {policy} a product has no neighbours; "
            "leave one of them out"
        )
    return Policy.CHAIN_PDL


def measured(best: Best) -> Answer:
    """The answer for the problem of a best: `measured`, or `stale`."""
    changed = changed_since(best)
    replay = _replay(best)
    why = (
        f"measured on {best.device}{replay} under {best.policy.value}: {counted(best.tried, 'candidate')} tried, every "
        f"element verified{'; ' if changed else ''}{changed}"
    )
    winner = best.winner.measurement
    return Answer(
        best.problem, best.device, winner.policy, "stale" if changed else "measured", best.config, best.median_us, best,
        why, median_interval_us(winner, best.device), taken(best, winner.note if replay else ""),
    )  # fmt: skip


def _replay(best: Best) -> str:
    return " (replayed from a recording; no GPU was used)" if best.device_kind == "recorded" else ""


def recorded(best: Best) -> Answer:
    """The answer for the problem of a recording's best, which no store has."""
    winner = best.winner.measurement
    why = (
        f"from a recording of a real {best.device} under {best.policy.value}, not measured here: "
        f"{counted(best.tried, 'candidate')} tried, every element verified"
    )
    return Answer(
        best.problem, best.device, winner.policy, "recorded", best.config, best.median_us, best, why,
        median_interval_us(winner, best.device), taken(best, winner.note),
    )  # fmt: skip


def _under_another(found: Answer, policy: Policy) -> Answer:
    """An answer under another policy than the one asked for."""
    # Of a recording only the best that is served is kept at hand, whatever its finals were timed under.
    none = "no recorded best of this problem is" if found.source == "recorded" else "nothing was measured"
    return replace(found, why=f"{none} under {policy.value}; {found.why}")


def _instead(found: Answer, broken: str) -> Answer:
    """An answer in place of the measured winner, which breaks a rule by now."""
    return replace(found, why=f"the measured winner breaks {broken} by now; {found.why}")


def _none(problem: Problem, device: str, policy: Policy, why: str) -> Answer:
    """The answer without a config."""
    return Answer(problem, device, policy, "none", None, None, None, why)


@dataclass(frozen=True, slots=True)
class _Prediction:
    """A predicted config, its time and the 90 % interval of that time."""

    config: Config
    time_us: float
    interval_us: tuple[float, float] | None


@dataclass(frozen=True)
class _Question:
    """A question without a measured answer, with everything needed to answer it.

    Attributes:
        wrong: texts of configs that were found wrong here: no answer has one.
    """

    problem: Problem
    profile: DeviceProfile
    family: Family
    policy: Policy
    model: LearnedModel | None
    wrong: Set[str]

    @property
    def judge(self) -> Judge:
        """Compares the times of configs at two shapes."""
        return Judge(self.profile, self.model)

    def predictor(self, config: Config) -> str:
        """The model that predicts a config's time, in words."""
        return "the learned model" if self.judge.learned(config.family, self.problem) else "the analytic model"

    def grounds(self, config: Config) -> tuple[str, ...]:
        """Sentences that say what the prediction of a config's time is based on."""
        return expected(self.problem, self.profile, config, self.judge.learned(config.family, self.problem))

    def predicted(self) -> _Prediction | None:
        """The model's first choice; None if no config is legal, or each was found wrong.

        It has an interval where the errors of such times are known: on cards whose rates were measured or whose times
        taught the model, of families with enough measurements.
        """
        if self.model and (found := first_choice(self.model, self.problem, self.profile, self.wrong)):
            time_us, low, high = found.under(self.policy)
            known = self.profile.measured or found.model.learned_here
            return _Prediction(found.config, time_us, (low, high) if known else None)
        ranked = rank(self._space(), self.profile)
        right = (place for place in range(len(ranked)) if ranked.config(place).key not in self.wrong)
        if (place := next(right, None)) is None:
            return None
        time_us = float(ranked.estimates_us[place])
        known = self.profile.measured and self.family.grounded
        interval = (time_us * ANALYTIC_LOW, time_us * ANALYTIC_HIGH) if known else None
        return _Prediction(ranked.config(place), time_us, interval)

    def nearest(self, neighbour: Neighbour) -> Answer:
        """The answer with a neighbour's config."""
        best, changed = neighbour.best, changed_since(neighbour.best)
        shape, policy = best.problem.size, best.policy
        under = "" if policy is self.policy else f" under {policy.value}"
        won = bare_twin(neighbour.config) == bare_twin(best.config)
        place, of = ("winner", "") if won else ("runner-up", " for its winner")
        why = f"{self.problem.size} was not measured; the {place} of {shape} is legal for it, its time{under} scaled"
        # What was measured among such kernels needs no early launch put on.
        among = policy is Policy.CHAIN_PDL and self.policy is policy
        config, early = (neighbour.config, ()) if among else self.among_neighbours(neighbour.config)
        grounds = (
            f"{best.median_us:.2f} µs measured at {shape}{of}{_replay(best)}, {neighbour.octaves:.2f} octaves away; "
            f"{self.predictor(neighbour.config)} scales the time to the new shape",
            *((f"{shape}: {changed}",) if changed else ()),
            *early,
            *self.grounds(neighbour.config),
        )
        time_us, interval_us = max(neighbour.time_us, self._bound_us), self._above_bound(neighbour.interval_us)
        return Answer(self.problem, self.profile.name, policy, "nearest", config, time_us,
                      best, why, interval_us, grounds)  # fmt: skip

    def from_prediction(self, predicted: _Prediction | None, neighbour: Neighbour | None) -> Answer:
        """The answer with a prediction, or the reason why no config is legal."""
        if predicted:
            near = f"no best near {self.problem.size} is stored for {self.profile.name}"
            if not arch_measured(arch := self.profile.arch.name):
                near = f"predicted, never measured on this architecture ({arch})"
            if neighbour:
                near = f"the config of {neighbour.best.problem.size} would be much slower at {self.problem.size}"
            among = " of those that were not wrong here" if self.wrong else ""
            why = f"{near}; {self.predictor(predicted.config)} ranks this config first{among}"
            config, early = self.among_neighbours(predicted.config)
            return Answer(self.problem, self.profile.name, self.policy, "predicted", config,
                          max(predicted.time_us, self._bound_us), None, why, self._above_bound(predicted.interval_us),
                          (*early, *self.grounds(config), *self.of_screening(config)))  # fmt: skip
        return _none(self.problem, self.profile.name, self.policy, self._why_none())

    def among_neighbours(self, config: Config) -> tuple[Config, tuple[str, ...]]:
        """An unmeasured config as the question's neighbours let it start, and a sentence where that is early."""
        early = early_twin(self.problem, config) if self.policy is Policy.CHAIN_PDL else None
        if early is None or early.key in self.wrong:
            return config, ()
        if not is_legal(family_named(early.family), self.problem, early, self.profile):
            return config, ()
        return early, ("the kernels around it allow an early launch (pdl=1); the expected time is without one",)

    def of_screening(self, config: Config) -> tuple[str, ...]:
        """A sentence where the model knows no times under the asked policy: the learned one expects a screening's."""
        model = self.judge.learned(config.family, self.problem)
        if model is None:
            return ("the analytic model expects the same time under every policy",)
        if self.policy is SCREENING or self.policy.value in model.facts.served:
            return ()
        return (f"no times under {self.policy.value} were learned: the expected one is {SCREENING.value}'s",)

    def _above_bound(self, interval_us: tuple[float, float] | None) -> tuple[float, float] | None:
        """The part of an interval above the roofline bound, which no kernel beats."""
        bound_us = self._bound_us
        return (max(interval_us[0], bound_us), max(interval_us[1], bound_us)) if interval_us else None

    @cached_property
    def _bound_us(self) -> float:
        return roofline_us(self.problem, self.profile)

    def _space(self) -> Space:
        return enumerate_space(self.family, self.problem, self.profile)

    def _why_none(self) -> str:
        if self.wrong and len(self._space()):
            return f"every {self.family.name} config that is legal for {self.problem.title} was found wrong"
        row = self.family.empty_columns(self.problem, self.profile)
        for rule in self.family.legal:
            if not rule.reads and not rule.mask(row).all():
                return rule.numbers(row)
        return (
            f"no {self.family.name} config is legal for {self.problem.title}: rules {self._space().removed_most} leave "
            "none; `explain` says why"
        )
