"""Ladders as documents: a weight's best config at every M, and the cliffs between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from space.config import Config
from space.devices import find_profile, profile_named
from space.problem import Problem
from space.rank import roofline_us
from tuner.answering.answers import Answer, Bests, ExactBests, Source, answer
from tuner.answering.ladder import MS, Rung, cliffs, problems
from tuner.prediction.learned import LearnedModel


@dataclass(frozen=True, slots=True)
class RungFacts:
    """The answer for one M.

    Attributes:
        replayed: its time is measured, but not here: it was replayed from a recording.
    """

    m: int
    problem: str
    source: Source
    time_us: float | None
    interval_us: tuple[float, float] | None
    tflops: float | None
    roofline_us: float | None
    config: Config | None
    why: str
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class CliffFacts:
    """Two rungs that can't both be right; `again` are configs to measure for the slow one."""

    kind: Literal["inversion", "jump"]
    m: int
    time_us: float
    witness_m: int
    bound_us: float
    sentence: str
    again: tuple[Config, ...]


@dataclass(frozen=True, slots=True)
class Ladder:
    """A weight at every M.

    Attributes:
        varied: knobs whose value is not the same at every M.
    """

    rungs: tuple[RungFacts, ...]
    cliffs: tuple[CliffFacts, ...]
    varied: tuple[str, ...]


def ladder(
    bests: Bests, weight: Problem, device: str, ms: Sequence[int] = MS, model: LearnedModel | None = None,
    recordings: ExactBests | None = None,
) -> Ladder:  # fmt: skip
    """The answers for every M of the weight that `weight` multiplies with.

    Args:
        recordings: bests of recordings, which answer if `bests` lacks a problem.

    Raises:
        ProblemError: there is no M, there are too many, or an M is not a valid extent.
        ProfileError: the device is unknown.
    """
    answers = [answer(bests, problem, device, model=model, recordings=recordings) for problem in problems(weight, ms)]
    known = [
        Rung(found.problem, found.config, found.time_us, found.policy, found.best.runner_up if found.best else None)
        for found in answers
        if (found.source == "measured" or _replayed(found)) and found.config and found.time_us
    ]  # fmt: skip
    found = tuple(
        CliffFacts(cliff.kind, cliff.suspect.problem.extents[0], cliff.suspect.time_us,
                   cliff.witness.problem.extents[0], cliff.bound_us, cliff.sentence, cliff.again)
        for cliff in cliffs(known, profile_named(device))
    )  # fmt: skip
    return Ladder(tuple(map(_rung, answers)), found, tuple(_varied([each.config for each in answers if each.config])))


def _replayed(found: Answer) -> bool:
    of_store = found.source in ("measured", "stale")
    return of_store and found.best is not None and found.best.device_kind == "recorded"


def _rung(found: Answer) -> RungFacts:
    profile = find_profile(found.device)
    bound = roofline_us(found.problem, profile) if profile else None
    return RungFacts(found.problem.extents[0], found.problem.key, found.source, found.time_us, found.interval_us,
                     found.tflops, bound, found.config, found.why, _replayed(found))  # fmt: skip


def _varied(configs: Sequence[Config]) -> list[str]:
    values: dict[str, set[object]] = {}
    for name, value in (pair for config in configs for pair in config.values):
        values.setdefault(name, set()).add(value)
    return [name for name, several in values.items() if len(several) > 1]
