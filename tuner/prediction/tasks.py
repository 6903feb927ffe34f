"""Groups of measurements as arrays, which training and judging share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from space.devices import DeviceProfile, find_profile, same_multiprocessors
from space.plug import Family
from tuner.errors import ModelError
from tuner.prediction.examples import Group
from tuner.prediction.features import Features, features_of, problem_features
from tuner.prediction.learned import limits_named

Floats = npt.NDArray[np.float64]

#: Fewest problems; fewer can't be split into training and held-out problems.
LEAST_PROBLEMS: Final = 3
#: A candidate's weight is exp(-SLOW · (time / best time of its problem - 1)).
SLOW: Final = 2.0
#: Power of the candidates' weights in the average that gives the level, which thus follows the fastest candidates.
LEVEL_POWER: Final = 4


@dataclass(frozen=True)
class Task:
    """One group of measurements as arrays."""

    group: Group
    features: Features
    problem_row: Floats

    @property
    def error(self) -> Floats:
        """log(time / analytic estimate)."""
        return np.asarray(np.log(self.group.time_us / self.features.estimate_us))

    @property
    def weight(self) -> Floats:
        """Weight of each candidate, highest for the fastest."""
        return np.asarray(np.exp(-SLOW * (self.group.time_us / self.group.time_us.min() - 1)))

    @property
    def level(self) -> float:
        """Mean error of the analytic model over the fastest candidates."""
        return float(np.average(self.error, weights=self.weight**LEVEL_POWER))


def tasks_of(groups: Sequence[Group], family: Family, device: str) -> list[Task]:
    known = teaching(groups, device)
    problems = {group.problem.key for group in known if group.device == device}
    if len(problems) < LEAST_PROBLEMS:
        raise ModelError(
            f"{len(problems)} problems of {device} have enough correct candidates: a model needs {LEAST_PROBLEMS}; "
            f"tune or record more of them"
        )
    return _without_constants([_task(group, family, limits_named(group.device)) for group in known])


def teaching(groups: Sequence[Group], device: str) -> list[Group]:
    """The groups that teach a model of `device`: its own first, then those of devices with the same multiprocessors.

    Raises:
        ModelError: the device's rates are unknown.
    """
    limits = limits_named(device)
    known = [
        group for group in groups
        if (profile := find_profile(group.device)) is not None and same_multiprocessors(profile, limits)
    ]  # fmt: skip
    return sorted(known, key=lambda group: group.device != device)


def _without_constants(tasks: list[Task]) -> list[Task]:
    """The tasks without constant features: a knob with a single measured value teaches nothing."""
    same = tasks[0].features.rows[0]
    varies = np.any([np.any(task.features.rows != same, axis=0) for task in tasks], axis=0)
    names = tuple(name for name, kept in zip(tasks[0].features.names, varies, strict=True) if kept)
    return [
        replace(task, features=Features(names, task.features.rows[:, varies], task.features.estimate_us))
        for task in tasks
    ]


def _task(group: Group, family: Family, limits: DeviceProfile) -> Task:
    features = features_of(family, group.problem, family.columns(group.problem, group.configs, limits), limits)
    return Task(group, features, np.array(list(problem_features(group.problem, limits).values())))


def problem_table(tasks: list[Task]) -> tuple[Floats, Floats]:
    """Features and level of each problem on each device; its runs there count once."""
    runs_of = by_problem(tasks).values()
    rows = np.array([runs[0].problem_row for runs in runs_of])
    return rows, np.array([np.mean([task.level for task in runs]) for runs in runs_of])


def by_problem(tasks: list[Task]) -> dict[tuple[str, str], list[Task]]:
    """The runs by device and problem."""
    found: dict[tuple[str, str], list[Task]] = {}
    for task in tasks:
        found.setdefault((task.group.device, task.group.problem.key), []).append(task)
    return found
