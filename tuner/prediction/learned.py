"""LearnedModel: predicts the times of a family's candidates on one device, and knows its own errors.

Measurements of several devices with the same multiprocessors teach one model. A device without a model of its own takes
that of another one with the same multiprocessors.

time = analytic estimate × exp(trust × forest(candidate, problem) + level(problem))

The forest predicts how the candidates of one problem deviate from the analytic estimate. The level is the estimate's
error for the problem as a whole, averaged over nearby training problems.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from space.columns import Columns
from space.config import Config
from space.devices import DeviceProfile, find_profile, identity_named, profile_named, same_multiprocessors
from space.errors import ProfileError
from space.family import family_named
from space.kind import problem_from_key
from space.plug import Family
from space.problem import Problem
from tuner.errors import ModelError
from tuner.evidence.similarity import Places, kind_of
from tuner.prediction.features import Features, features_of, problem_features
from tuner.prediction.forest import Forest
from workers.measurement import Policy

Floats = npt.NDArray[np.float64]

#: Version of the file format; other versions are refused.
VERSION: Final = 4
#: How much wider intervals are for a problem outside the training, and on a device without measurements in it.
OUTSIDE_WIDENING: Final = 2.0
ELSEWHERE_WIDENING: Final = 2.0
#: Trees that rank all rows before the whole forest judges the best of them.
GLANCE_TREES: Final = 48
#: Relative difference above which an estimate counts as changed since the training.
_SAME: Final = 1e-6


class ModelFacts(BaseModel):
    """A model's training and its known errors.

    Attributes:
        version: version of the file format.
        device, family: the model predicts times of this family on this device.
        devices: those whose measurements taught it, its own first.
        features: names of the candidates' features, in the forest's order.
        problem_features: names of the problems' features, in the order of `LearnedModel.problem_rows`.
        problems: keys of the training problems.
        candidates: number of training measurements.
        data: digest of the training measurements.
        trained_with: library and version.
        probe_problem, probe_configs, probe_us: analytic estimates at training time. If they differ now, the analytic
            model has changed and this model would correct errors that no longer exist.
        doubt: standard deviation of log(time / prediction) within a held-out problem.
        low, high: 5 % and 95 % quantiles of log(time / prediction) for the candidates ranked first on held-out
            problems, including the problem's offset.
        bandwidth: bandwidth of the average over nearby problems, in standard deviations of their features.
        trust: share of the forest's correction that gave the best first choices on held-out problems.
        reach: largest distance from the nearest training problem that counts as covered, in octaves of M, N and K
            together.
        held_out_share, held_out_worst: the first choice's share of the best speed on held-out problems, geometric
            mean and minimum.
        portfolio: configs that answers are chosen from (`tuner.prediction.portfolio`).
        served: by the policy that decides what is served, 5 %, 50 % and 95 % quantiles of log(time of the fastest
            finalist under it / its prediction) on held-out problems. Predictions are of screenings, which rest.
    """

    model_config = ConfigDict(frozen=True)

    version: int
    device: str
    family: str
    features: tuple[str, ...]
    problem_features: tuple[str, ...]
    problems: tuple[str, ...]
    candidates: int
    data: str
    trained_with: str
    probe_problem: str
    probe_configs: tuple[str, ...]
    probe_us: tuple[float, ...]
    doubt: float
    low: float
    high: float
    bandwidth: float
    trust: float
    reach: float
    held_out_share: float
    held_out_worst: float
    portfolio: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    served: dict[str, tuple[float, float, float]] = {}


@dataclass(frozen=True)
class Prediction:
    """Predicted times of candidates.

    Attributes:
        time_us: (candidates,).
        low_us, high_us: (candidates,), an interval that held 90 % of the first choices on held-out problems.
        doubt: standard deviation of log(time / prediction) within the problem, without its offset.
        widening: how much wider the interval is than within the training's domain.
    """

    time_us: Floats
    low_us: Floats
    high_us: Floats
    doubt: float
    widening: float


@dataclass(frozen=True)
class Domain:
    """Whether the training covers a problem.

    Attributes:
        inside: whether the training covers it.
        sentence: the same in words, with the nearest training problem of its kind.
    """

    inside: bool
    sentence: str


@dataclass(frozen=True)
class LearnedModel:
    """One trained model.

    Attributes:
        forest: predicts a candidate's deviation from the estimate.
        problem_rows: (training problems, features).
        levels: (training problems,), error of the estimate, plus the median error of first choices.
        elsewhere: another device with the same multiprocessors, whose times it predicts; empty for the model's own.
        beside: models of the families that compete with its own for some problems.
    """

    facts: ModelFacts
    forest: Forest
    problem_rows: Floats
    levels: Floats
    elsewhere: str = ""
    beside: tuple[LearnedModel, ...] = ()
    _order: tuple[tuple[str, ...], list[int]] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def device(self) -> str:
        """The device whose times it predicts."""
        return self.elsewhere or self.facts.device

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices whose measurements taught it."""
        return self.facts.devices or (self.facts.device,)

    @property
    def learned_here(self) -> bool:
        """Whether measurements of the device whose times it predicts taught it."""
        return self.device in self.devices

    def of(self, family: str, problem: Problem) -> LearnedModel | None:
        """The model of a family for a problem: this one, or one beside it. None where the family does not compete: no
        such product taught it.
        """
        if not family_named(family).competes_on(profile_named(self.device).arch.name, problem):
            return None
        return next((each for each in (self, *self.beside) if each.facts.family == family), None)

    def on(self, device: str) -> LearnedModel | None:
        """The model that predicts times of `device`, by any of its names; None where its multiprocessors are others."""
        device = identity_named(device)
        if device == self.device:
            return self
        here, trained = find_profile(device), find_profile(self.facts.device)
        if here is None or trained is None or not same_multiprocessors(here, trained):
            return None
        by = ELSEWHERE_WIDENING if self.learned_here and device not in self.devices else 1.0
        errors: dict[str, Any] = {name: getattr(self.facts, name) * by for name in ("doubt", "low", "high")}
        errors["served"] = {policy: _wider(known, by) for policy, known in self.facts.served.items()}
        beside = tuple(there for each in self.beside if (there := each.on(device)))
        return replace(self, facts=self.facts.model_copy(update=errors), elsewhere=device, beside=beside)

    def under(self, policy: Policy, predicted: Prediction, place: int) -> tuple[float, float, float]:
        """What finals under a policy would measure of one prediction, with its 90 % interval, in microseconds.

        Of a policy that decides nothing, or whose finals the training did not have, that is the prediction itself.
        """
        time_us = float(predicted.time_us[place])
        known = self.facts.served.get(policy.value)
        if known is None:
            return time_us, float(predicted.low_us[place]), float(predicted.high_us[place])
        low, middle, high = _wider(known, predicted.widening)
        return time_us * math.exp(middle), time_us * math.exp(low), time_us * math.exp(high)

    def predict(self, problem: Problem, columns: Columns) -> Prediction:
        """Times of every row of `columns`."""
        family, limits = family_named(self.facts.family), profile_named(self.device)
        return self.predict_features(problem, features_of(family, problem, columns, limits))

    def predict_features(self, problem: Problem, features: Features, closely: int | None = None) -> Prediction:
        """Times from given features.

        Args:
            closely: how many of the seemingly fastest rows all trees judge; all rows by default.
        """
        rows = features.rows[:, self._columns(features.names)]
        if closely is None or len(rows) <= closely:
            correction = self.forest.predict(rows)
        else:
            correction = self.forest.predict(rows, GLANCE_TREES)
            looks = np.log(features.estimate_us) + self.facts.trust * correction
            # A stable sort: which of equals a partition takes depends on the processor.
            ahead = np.argsort(looks, kind="stable")[:closely]
            correction[ahead] = self.forest.predict(rows[ahead])
        time = features.estimate_us * np.exp(self.facts.trust * correction + self.level(problem))
        wider = self.widening(problem)
        low, high = np.exp(self.facts.low * wider), np.exp(self.facts.high * wider)
        return Prediction(time, time * low, time * high, self.facts.doubt * wider, wider)

    def widening(self, problem: Problem) -> float:
        """How much wider intervals are for `problem` than within the training's domain."""
        return 1.0 if self.domain(problem).inside else OUTSIDE_WIDENING

    def level(self, problem: Problem) -> float:
        """Expected log(time / analytic estimate) of a problem as a whole."""
        like = self.device if self.learned_here else self.facts.device
        row = np.array(list(problem_features(problem, profile_named(like)).values()))
        return smoothed(self.problem_rows, self.levels, row, self.facts.bandwidth)

    def domain(self, problem: Problem) -> Domain:
        """Whether the training covers `problem`."""
        alike = self._alike.get(kind_of(problem))
        if alike is None:
            kinds = ", ".join(sorted(" ".join(kind) for kind in self._alike))
            return Domain(False, f"{' '.join(kind_of(problem))} was not in the training: it saw {kinds}")
        nearest, away = alike.nearest(problem)
        here, there = problem.size, nearest.size
        if away > self.facts.reach:
            # What lies farther must not read as far.
            digits = 2 if f"{away:.1f}" == f"{self.facts.reach:.1f}" else 1
            return Domain(
                False,
                f"{here} lies {away:.{digits}f} octaves from {there}, the nearest problem of the training, "
                f"which covers {self.facts.reach:.{digits}f}",
            )  # fmt: skip
        return Domain(True, f"{here} lies {away:.1f} octaves from {there} of the training")

    def _columns(self, names: tuple[str, ...]) -> list[int]:
        """The forest's columns in its order; the family's order may have changed since the training."""
        if self._order is None or self._order[0] != names:
            place = {name: column for column, name in enumerate(names)}
            object.__setattr__(self, "_order", (names, [place[name] for name in self.facts.features]))
        assert self._order is not None
        return self._order[1]

    @cached_property
    def _alike(self) -> dict[tuple[str, ...], Places]:
        """Training problems by kind."""
        found: dict[tuple[str, ...], list[Problem]] = {}
        for problem in map(problem_from_key, self.facts.problems):
            found.setdefault(kind_of(problem), []).append(problem)
        return {kind: Places(problems) for kind, problems in found.items()}

    def check(self) -> None:
        """Whether the model fits the family and the analytic model of this version.

        Raises:
            ModelError: it does not fit; the message says what has changed.
        """
        facts = self.facts
        if find_profile(facts.device) is None:
            raise ModelError(f"the model is of {facts.device!r}, an unknown card: add it to space/cards.py")
        family, limits = family_named(facts.family), profile_named(facts.device)
        problem = problem_from_key(facts.probe_problem)
        features = features_of(family, problem, family.columns(problem, _probe(family, facts), limits), limits)
        if gone := sorted(set(facts.features) - set(features.names)):
            raise ModelError(f"{_STALE}: features of {facts.family} are gone ({', '.join(gone[:4])}); {_TRAIN}")
        # The level is an average over rows of these: new names, or another order, would compare unlike numbers.
        if facts.problem_features != tuple(problem_features(problem, limits)):
            raise ModelError(f"{_STALE}: the features of {problem.kind} problems changed; {_TRAIN}")
        if not np.allclose(features.estimate_us, facts.probe_us, rtol=_SAME):
            raise ModelError(f"{_STALE}: the analytic estimate of {facts.family} changed; {_TRAIN}")
        for each in self.beside:
            each.check()


_STALE: Final = "the learned model is out of date"
_TRAIN: Final = "train it again with `gemmtune model train`"


def _wider(quantiles: tuple[float, float, float], by: float) -> tuple[float, float, float]:
    low, middle, high = quantiles
    return middle + (low - middle) * by, middle, middle + (high - middle) * by


def _probe(family: Family, facts: ModelFacts) -> list[Config]:
    return [family.parse(text) for text in facts.probe_configs]


def smoothed(rows: Floats, levels: Floats, row: Floats, bandwidth: float) -> float:
    """Average of `levels`, weighted by the distance of each of `rows` from `row`.

    The global mean enters with the weight of one problem two bandwidths away.
    """
    spread = rows.std(axis=0)
    varies = spread > 0
    away = ((rows[:, varies] - row[varies]) / spread[varies]) ** 2
    weights = np.exp(-0.5 * away.mean(axis=1) / bandwidth**2) if varies.any() else np.ones(len(rows))
    prior = np.exp(-2.0)
    return float((weights @ levels + prior * levels.mean()) / (weights.sum() + prior))


def limits_named(device: str) -> DeviceProfile:
    """Rates of a device.

    Raises:
        ModelError: none are known.
    """
    try:
        return profile_named(device)
    except ProfileError as error:
        raise ModelError(f"a model needs the rates of its device: {error}") from error
