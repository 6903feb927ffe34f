"""Training: turns groups of measurements into a model that knows its own errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from space.plug import Family
from tuner.evidence.similarity import kind_of, octaves
from tuner.prediction.examples import Group, digest_of
from tuner.prediction.features import problem_features
from tuner.prediction.grow import TREES, grown, scikit_learn
from tuner.prediction.judge import Judgement, judgement_of
from tuner.prediction.learned import VERSION, LearnedModel, ModelFacts, limits_named
from tuner.prediction.portfolio import SHAPES, build_portfolio
from tuner.prediction.tasks import Task, problem_table, tasks_of, teaching

#: Candidates whose analytic estimates a model keeps, to notice that the analytic model has changed since.
PROBES: Final = 8


def train(
    groups: Sequence[Group],
    family: Family,
    device: str,
    seed: int = 0,
    trees: int = TREES,
    judgement: Judgement | None = None,
    told: Callable[[str], None] = lambda _: None,
) -> LearnedModel:
    """A model of `device` from its groups and those of devices with the same multiprocessors; others are ignored.

    Args:
        judgement: what `judge` found of the same groups, if known. Judging takes most of the time, and models that
            differ only in their seed can share it.
        told: is called with each step that takes minutes, before it.

    Raises:
        ModelError: there are too few problems, the device's rates are unknown, or scikit-learn is not installed.
    """
    tasks = tasks_of(groups, family, device)
    judged = judgement or judgement_of(tasks, seed, trees, told)
    told("grows its forest on all problems")
    return _fitted(tasks, judged, device, family, seed, trees)


def with_portfolio(model: LearnedModel, groups: Sequence[Group], family: Family, shapes: int = SHAPES) -> LearnedModel:
    """The model with a portfolio for the kinds of problems in its groups; the fastest config of each group is in it.

    Args:
        shapes: number of shapes over all kinds, whose first choices join the winners.

    Raises:
        ModelError: the device's rates are unknown.
    """
    known = teaching(groups, model.facts.device)
    # More than one of each would crowd out what other shapes need.
    winners = [group.configs[int(np.argmin(group.time_us))] for group in known]
    kinds = {kind_of(group.problem): group.problem for group in known}
    limits = limits_named(model.facts.device)
    portfolio = build_portfolio(model, family, limits, winners, list(kinds.values()), shapes)
    return replace(model, facts=model.facts.model_copy(update={"portfolio": portfolio}))


def _fitted(tasks: list[Task], judged: Judgement, device: str, family: Family, seed: int, trees: int) -> LearnedModel:
    groups = [task.group for task in tasks]
    rows, levels = problem_table(tasks)
    probe = tasks[0]
    step = max(len(probe.group.configs) // PROBES, 1)
    sample = slice(None, step * PROBES, step)
    facts = ModelFacts(
        version=VERSION, device=device, devices=tuple(dict.fromkeys(group.device for group in groups)),
        family=family.name, features=probe.features.names,
        problem_features=tuple(problem_features(probe.group.problem, limits_named(device))),
        problems=tuple(sorted({group.problem.key for group in groups})),
        candidates=sum(len(group.configs) for group in groups), data=digest_of(groups),
        trained_with=f"scikit-learn {scikit_learn('sklearn').__version__}",
        probe_problem=probe.group.problem.key,
        probe_configs=tuple(config.knobs_text for config in probe.group.configs[sample]),
        probe_us=tuple(float(us) for us in probe.features.estimate_us[sample]),
        reach=_reach(tasks), **judged.facts,
    )  # fmt: skip
    return LearnedModel(facts, grown(tasks, trees, seed), rows, levels + judged.middle)


def _reach(tasks: list[Task]) -> float:
    """Twice the median distance between a training problem and its nearest neighbour, in octaves."""
    problems = list(dict.fromkeys(task.group.problem for task in tasks))
    gaps = []
    for problem in problems:
        alike = [other for other in problems if other != problem and kind_of(other) == kind_of(problem)]
        gaps += [min(octaves(problem, other) for other in alike)] if alike else []
    return 2 * float(np.median(gaps)) if gaps else 2.0
