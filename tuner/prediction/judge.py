"""What a model gets wrong on problems that it has not seen.

Held-out problems do not affect its forest, its levels, or any number that scales these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from space.plug import Family
from tuner.evidence.picks import precedence
from tuner.prediction.examples import Group
from tuner.prediction.grow import TREES, grown
from tuner.prediction.learned import smoothed
from tuner.prediction.tasks import LEVEL_POWER, Floats, Task, by_problem, problem_table, tasks_of

#: Most folds of held-out problems.
MOST_FOLDS: Final = 12
BANDWIDTHS: Final = (0.35, 0.7, 1.4, 2.8)
#: First choices per held-out problem whose errors give the interval.
JUDGED: Final = 16
#: Shares of the forest's correction to choose from; few or dissimilar problems teach it mostly noise.
TRUSTS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
#: Predicted times whose logarithms differ by less than this count as the same first choice.
ALIKE: Final = 0.015
#: Fewest problems whose finals say how times under a policy differ from predictions: a twentieth of fewer is none.
LEAST_SERVED: Final = 20


@dataclass(frozen=True)
class Judgement:
    """Errors on held-out problems.

    Attributes:
        middle: median of log(time / prediction) of first choices, which look better than they are.
        facts: the errors by their names in `ModelFacts`.
    """

    middle: float
    facts: Mapping[str, Any]


def judge(groups: Sequence[Group], family: Family, device: str, seed: int = 0, trees: int = TREES) -> Judgement:
    """The errors that a model of these groups makes on problems it has not seen.

    Args:
        trees: trees of the model, and of each forest that judges it.

    Raises:
        ModelError: there are too few problems, the device's rates are unknown, or scikit-learn is not installed.
    """
    return judgement_of(tasks_of(groups, family, device), seed, trees, lambda _: None)


@dataclass(frozen=True)
class _Held:
    """One held-out problem with the correction and level that a model without it predicts.

    Attributes:
        fold: of the problems that were held out together.
    """

    fold: int
    task: Task
    correction: Floats
    level: float

    def residual(self, trust: float) -> Floats:
        """log(time / prediction), without the level."""
        return self.task.error - trust * self.correction

    def regret(self, trust: float) -> float:
        """log(time of the first choice / best time), averaged over near ties."""
        time = np.log(self.task.group.time_us)
        predicted = time - self.residual(trust)
        odds = np.exp((predicted.min() - predicted) / ALIKE)
        return float(np.average(np.minimum(time - time.min(), 1.0), weights=odds))


def _held_out(
    tasks: list[Task], seed: int, trees: int, bandwidth: float, told: Callable[[str], None]
) -> list[_Held]:  # fmt: skip
    """Each problem predicted from the others."""
    keys = sorted({task.group.problem.key for task in tasks})
    found, folds = [], min(len(keys), MOST_FOLDS)
    for fold in range(folds):
        told(f"is judged on held-out problems, part {fold + 1} of {folds}")
        held = set(keys[fold::MOST_FOLDS])
        known = [task for task in tasks if task.group.problem.key not in held]
        forest = grown(known, trees, seed)
        rows, levels = problem_table(known)
        for task in (task for task in tasks if task.group.problem.key in held):
            correction = forest.predict(task.features.rows)
            found.append(_Held(fold, task, correction, smoothed(rows, levels, task.problem_row, bandwidth)))
    return found


def judgement_of(tasks: list[Task], seed: int, trees: int, told: Callable[[str], None]) -> Judgement:
    """Measures the errors of predictions on held-out problems and chooses the trust in the forest.

    A problem is judged with the trust that the other folds would choose.
    """
    bandwidth = _bandwidth(tasks)
    found = _held_out(tasks, seed, trees, bandwidth, told)
    regrets = np.array([[held.regret(trust) for trust in TRUSTS] for held in found])
    folds = np.array([held.fold for held in found])
    chosen = {fold: TRUSTS[int(regrets[folds != fold].mean(axis=0).argmin())] for fold in set(folds.tolist())}
    residuals = [held.residual(chosen[held.fold]) for held in found]
    squares, ahead, shares = [], [], []
    for held, left in zip(found, residuals, strict=True):
        time_us = held.task.group.time_us
        weight = held.task.weight**LEVEL_POWER
        squares.append(np.average((left - np.average(left, weights=weight)) ** 2, weights=weight))
        first = np.argsort(np.log(time_us) - left, kind="stable")[:JUDGED]
        ahead.append(left[first] - held.level)
        shares.append(float(time_us.min() / time_us[first[0]]))
    low, middle, high = map(float, np.quantile(np.concatenate(ahead), (0.05, 0.5, 0.95)))
    trust = TRUSTS[int(regrets.mean(axis=0).argmin())]
    return Judgement(middle, {
        "served": _served(found, residuals, middle),
        "doubt": float(np.sqrt(np.mean(squares))), "low": low - middle, "high": high - middle, "bandwidth": bandwidth,
        "trust": trust, "held_out_share": float(np.exp(np.mean(np.log(shares)))), "held_out_worst": min(shares),
    })  # fmt: skip


def _served(found: Sequence[_Held], residuals: Sequence[Floats], middle: float) -> dict[str, tuple[float, ...]]:
    """By the policy that decides: quantiles of log(the fastest finalist's time under it / its prediction)."""
    errors: dict[str, list[float]] = {}
    for held, left in zip(found, residuals, strict=True):
        group = held.task.group
        if not group.served_us:
            continue
        fastest = min(group.served_us, key=lambda config: group.served_us[config])
        row = group.configs.index(fastest)
        predicted = np.log(group.time_us[row]) - left[row] + held.level + middle
        policy = precedence(group.problem, group.device)[0].value
        errors.setdefault(policy, []).append(float(np.log(group.served_us[fastest]) - predicted))
    return {
        policy: tuple(map(float, np.quantile(of_policy, (0.05, 0.5, 0.95))))
        for policy, of_policy in sorted(errors.items()) if len(of_policy) >= LEAST_SERVED
    }  # fmt: skip


def _bandwidth(tasks: list[Task]) -> float:
    """The bandwidth that best predicts each problem's level from the others' levels."""
    rows, levels = problem_table(tasks)
    keys = np.array([key for _, key in by_problem(tasks)])
    others = [keys != key for key in keys]

    def error(bandwidth: float) -> float:
        told = [smoothed(rows[mask], levels[mask], row, bandwidth) for mask, row in zip(others, rows, strict=True)]
        return float(np.mean((np.array(told) - levels) ** 2))

    return min(BANDWIDTHS, key=error)
