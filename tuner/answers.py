"""Answers: the best config for a problem on a device, and where it comes from.

`measured` beats `nearest`, which beats `predicted`, which beats `default`. An untuned shape is never an
error and never a silent guess: every answer names its source and its evidence, and is legal at the asked
shape, or says that nothing is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

from space.arch import DEVICES, arch_named
from space.config import Config
from space.explain import is_legal, nearest_legal
from space.family import Family, family_for, family_named
from space.problem import Problem
from space.rank import predict
from tuner.distance import log_distance
from tuner.records import Best
from workers.measurement import Policy

Source = Literal["measured", "nearest", "predicted", "default", "none"]

#: How far the asked shape may lie from a measured one, as the sum of |log2| over M, N and K.
NEAREST_REACH = 1.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What to run.

    Attributes:
        source: where `config` comes from; `none` when no config of any family is legal.
        time_us: the measured median for `measured`, an estimate otherwise; None where there is none.
        best: the evidence: the best itself for `measured`, the neighbour's for `nearest`.
        why: one sentence on the source.
    """

    problem: Problem
    device: str
    policy: Policy
    source: Source
    config: Config | None
    time_us: float | None
    best: Best | None
    why: str

    @property
    def tflops(self) -> float | None:
        """TFLOP/s at `time_us`."""
        return self.problem.tflops(self.time_us) if self.time_us else None


class Bests(Protocol):
    """Where measured answers come from: the store, or what a service keeps of it in memory."""

    def best(self, problem: Problem, device: str, policy: Policy) -> Best | None:
        """The best of one problem on a device model."""

    def neighbours(self, problem: Problem, device: str) -> Iterable[Best]:
        """Bests whose problems differ from `problem` in their extents alone, nearest first."""


def answer(bests: Bests, problem: Problem, device: str, policy: Policy = Policy.COLD_GRAPH) -> Answer:
    """The best known config for `problem` on the device model `device`."""
    if best := bests.best(problem, device, policy):
        return measured(best)
    return _nearest(bests, problem, device, policy) or _predicted(problem, device, policy)


def measured(best: Best) -> Answer:
    """The answer for the very problem that a best is of."""
    replay = " (replayed from a recording)" if best.device_kind == "recorded" else ""
    why = f"measured on {best.device}{replay}: {best.tried} candidates tried, every element verified"
    policy = best.winner.measurement.policy
    return Answer(best.problem, best.device, policy, "measured", best.config, best.median_us, best, why)


def _nearest(bests: Bests, problem: Problem, device: str, policy: Policy) -> Answer | None:
    for best in bests.neighbours(problem, device):
        if log_distance(problem, best.problem) > NEAREST_REACH:
            return None
        if best.winner.measurement.policy is not policy:
            continue
        family = family_named(best.config.family)
        if not is_legal(family, problem, best.config):
            continue
        scaled = (
            best.median_us
            * _estimate(family, problem, best.config, device)
            / max(_estimate(family, best.problem, best.config, device), 1e-9)
        )
        why = f"{problem.shape} was not measured; the config of {best.problem.shape} is legal there, its time is scaled"
        return Answer(problem, device, policy, "nearest", best.config, scaled, best, why)
    return None


def _predicted(problem: Problem, device: str, policy: Policy) -> Answer:
    limits = DEVICES.get(device)
    family = family_for(limits.arch if limits else "sm_90a")
    if limits and (guess := predict(family, problem, limits)):
        why = f"nothing near {problem.shape} was measured on {device}; the analytic model ranks this config first"
        return Answer(problem, device, policy, "predicted", guess[0], guess[1], None, why)
    if default := default_config(family, problem):
        why = f"nothing is known of {device}; these are the family's defaults, made legal for {problem.shape}"
        return Answer(problem, device, policy, "default", default, None, None, why)
    why = f"no {family.name} config is legal for {problem.dtype} {problem.layout} {problem.shape}; `explain` says why"
    return Answer(problem, device, policy, "none", None, None, None, why)


def default_config(family: Family, problem: Problem) -> Config | None:
    """The family's defaults, or the legal config nearest to them."""
    config = family.config({})
    arch = arch_named(family.arch)
    return config if is_legal(family, problem, config, arch) else nearest_legal(family, problem, config, arch)[0]


def _estimate(family: Family, problem: Problem, config: Config, device: str) -> float:
    limits = DEVICES.get(device)
    if limits is None:
        return float(problem.flops)
    return float(family.estimate_us(family.columns(problem, [config], arch_named(limits.arch)), limits)[0])
