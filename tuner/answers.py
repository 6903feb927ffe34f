"""Answers: the best config for a problem on a device, and where it comes from.

`measured` beats `nearest`, which beats `predicted`, which beats `default`. An untuned shape is never an
error and never a silent guess: every answer names its source and its evidence, and is legal at the asked
shape, or says that nothing is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from space.arch import DEVICES, arch_named
from space.config import Config
from space.explain import is_legal, nearest_legal
from space.family import Family, family_for, family_named
from space.problem import Problem
from space.rank import predict
from tuner.records import Best
from tuner.store.store import Store
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


def answer(store: Store, problem: Problem, device: str, policy: Policy = Policy.COLD_GRAPH) -> Answer:
    """The best known config for `problem` on the device model `device`."""
    if best := store.best(problem, device, policy):
        replay = " (replayed from a recording)" if best.device_kind == "recorded" else ""
        why = f"measured on {device}{replay}: {best.tried} candidates tried, every element verified"
        return Answer(problem, device, policy, "measured", best.config, best.median_us, best, why)
    return _nearest(store, problem, device, policy) or _predicted(problem, device, policy)


def _nearest(store: Store, problem: Problem, device: str, policy: Policy) -> Answer | None:
    for best in store.neighbours(problem, device):
        distance = log_distance(problem, best.problem)
        if distance > NEAREST_REACH or best.winner.measurement.policy is not policy:
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


def log_distance(one: Problem, other: Problem) -> float:
    """How far two shapes are apart: the sum of |log2| of the ratios of M, N and K."""
    pairs = ((one.m, other.m), (one.n, other.n), (one.k, other.k))
    return sum(abs(math.log2(a / b)) for a, b in pairs)


def _estimate(family: Family, problem: Problem, config: Config, device: str) -> float:
    limits = DEVICES.get(device)
    if limits is None:
        return float(problem.flops)
    return float(family.estimate_us(family.columns(problem, [config], arch_named(limits.arch)), limits)[0])
