"""Training: turns groups of measurements into a model that knows its own errors.

scikit-learn boosts regression trees (Friedman, 2001) on histograms of the features; serving needs only NumPy. Held-out
problems judge the model: they do not affect its forest, its levels, or any number that scales these.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from space.devices import DeviceProfile, find_profile, same_multiprocessors
from space.plug import Family
from tuner.errors import ModelError
from tuner.evidence.picks import precedence
from tuner.evidence.similarity import kind_of, octaves
from tuner.prediction.examples import Group, digest_of
from tuner.prediction.features import Features, features_of, problem_features
from tuner.prediction.forest import Forest
from tuner.prediction.learned import VERSION, LearnedModel, ModelFacts, limits_named, smoothed
from tuner.prediction.portfolio import SHAPES, build_portfolio

Floats = npt.NDArray[np.float64]

#: Fewest problems; fewer can't be split into training and held-out problems.
LEAST_PROBLEMS: Final = 3
#: Trees of a forest, and the share of what is left that each corrects.
TREES, RATE = 400, 0.06
#: Most leaves of a tree, fewest candidates of a leaf, and the weight that pulls its value towards zero.
LEAVES, LEAST_LEAF, SHRINKAGE = 127, 10, 1.0
#: Share of the features that a split chooses from.
FEATURE_SHARE: Final = 0.5
#: Most folds of held-out problems.
MOST_FOLDS: Final = 12
#: A candidate's weight is exp(-SLOW · (time / best time of its problem - 1)).
SLOW: Final = 2.0
#: Power of the candidates' weights in the average that gives the level, which thus follows the fastest candidates.
LEVEL_POWER: Final = 4
BANDWIDTHS: Final = (0.35, 0.7, 1.4, 2.8)
#: First choices per held-out problem whose errors give the interval.
JUDGED: Final = 16
PROBES: Final = 8
#: Shares of the forest's correction to choose from; few or dissimilar problems teach it mostly noise.
TRUSTS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
#: Predicted times whose logarithms differ by less than this count as the same first choice.
ALIKE: Final = 0.015
#: Fewest problems whose finals say how times under a policy differ from predictions: a twentieth of fewer is none.
LEAST_SERVED: Final = 20


@dataclass(frozen=True)
class _Task:
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
        judgement: result of `judge` for the same groups, if known. Judging takes most of the time, and models that
            differ only in their seed can share it.
        told: is called with each step that takes minutes, before it.

    Raises:
        ModelError: there are too few problems, the device's rates are unknown, or scikit-learn is not installed.
    """
    tasks = _tasks(groups, family, device)
    judged = judgement or _judged(tasks, seed, trees, told)
    told("grows its forest on all problems")
    return _fitted(tasks, judged, device, family, seed, trees)


def judge(groups: Sequence[Group], family: Family, device: str, seed: int = 0, trees: int = TREES) -> Judgement:
    """The errors that a model of these groups makes on problems it has not seen.

    Args:
        trees: trees of the model, and of each forest that judges it.

    Raises:
        ModelError: as `train`.
    """
    return _judged(_tasks(groups, family, device), seed, trees, lambda _: None)


def _tasks(groups: Sequence[Group], family: Family, device: str) -> list[_Task]:
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


def _without_constants(tasks: list[_Task]) -> list[_Task]:
    """The tasks without constant features: a knob with a single measured value teaches nothing."""
    same = tasks[0].features.rows[0]
    varies = np.any([np.any(task.features.rows != same, axis=0) for task in tasks], axis=0)
    names = tuple(name for name, kept in zip(tasks[0].features.names, varies, strict=True) if kept)
    return [
        replace(task, features=Features(names, task.features.rows[:, varies], task.features.estimate_us))
        for task in tasks
    ]


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


@dataclass(frozen=True)
class Judgement:
    """Errors on held-out problems.

    Attributes:
        middle: median of log(time / prediction) of first choices, which look better than they are.
        facts: the errors by their names in `ModelFacts`.
    """

    middle: float
    facts: Mapping[str, Any]


def _task(group: Group, family: Family, limits: DeviceProfile) -> _Task:
    features = features_of(family, group.problem, family.columns(group.problem, group.configs, limits), limits)
    return _Task(group, features, np.array(list(problem_features(group.problem, limits).values())))


def _fitted(tasks: list[_Task], judged: Judgement, device: str, family: Family, seed: int, trees: int) -> LearnedModel:
    groups = [task.group for task in tasks]
    rows, levels = _problem_table(tasks)
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
    return LearnedModel(facts, _forest(tasks, trees, seed), rows, levels + judged.middle)


@dataclass(frozen=True)
class _Held:
    """One held-out problem with the correction and level that a model without it predicts.

    Attributes:
        fold: of the problems that were held out together.
    """

    fold: int
    task: _Task
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
    tasks: list[_Task], seed: int, trees: int, bandwidth: float, told: Callable[[str], None]
) -> list[_Held]:  # fmt: skip
    """Each problem predicted from the others."""
    keys = sorted({task.group.problem.key for task in tasks})
    found, folds = [], min(len(keys), MOST_FOLDS)
    for fold in range(folds):
        told(f"is judged on held-out problems, part {fold + 1} of {folds}")
        held = set(keys[fold::MOST_FOLDS])
        known = [task for task in tasks if task.group.problem.key not in held]
        forest = _forest(known, trees, seed)
        rows, levels = _problem_table(known)
        for task in (task for task in tasks if task.group.problem.key in held):
            correction = forest.predict(task.features.rows)
            found.append(_Held(fold, task, correction, smoothed(rows, levels, task.problem_row, bandwidth)))
    return found


def _judged(tasks: list[_Task], seed: int, trees: int, told: Callable[[str], None]) -> Judgement:
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


def _bandwidth(tasks: list[_Task]) -> float:
    """The bandwidth that best predicts each problem's level from the others' levels."""
    rows, levels = _problem_table(tasks)
    keys = np.array([key for _, key in _by_problem(tasks)])
    others = [keys != key for key in keys]

    def error(bandwidth: float) -> float:
        told = [smoothed(rows[mask], levels[mask], row, bandwidth) for mask, row in zip(others, rows, strict=True)]
        return float(np.mean((np.array(told) - levels) ** 2))

    return min(BANDWIDTHS, key=error)


def _problem_table(tasks: list[_Task]) -> tuple[Floats, Floats]:
    """Features and level of each problem on each device; its runs there count once."""
    runs_of = _by_problem(tasks).values()
    rows = np.array([runs[0].problem_row for runs in runs_of])
    return rows, np.array([np.mean([task.level for task in runs]) for runs in runs_of])


def _by_problem(tasks: list[_Task]) -> dict[tuple[str, str], list[_Task]]:
    """The runs by device and problem."""
    found: dict[tuple[str, str], list[_Task]] = {}
    for task in tasks:
        found.setdefault((task.group.device, task.group.problem.key), []).append(task)
    return found


def _reach(tasks: list[_Task]) -> float:
    """Twice the median distance between a training problem and its nearest neighbour, in octaves."""
    problems = list(dict.fromkeys(task.group.problem for task in tasks))
    gaps = []
    for problem in problems:
        alike = [other for other in problems if other != problem and kind_of(other) == kind_of(problem)]
        gaps += [min(octaves(problem, other) for other in alike)] if alike else []
    return 2 * float(np.median(gaps)) if gaps else 2.0


def _forest(tasks: list[_Task], trees: int, seed: int) -> Forest:
    """A forest that predicts how a problem's candidates deviate from their analytic estimates."""
    rows = np.vstack([task.features.rows for task in tasks]).astype(np.float32)
    target = np.concatenate([task.error - task.level for task in tasks])
    weight = np.concatenate([task.weight for task in tasks])
    grower = scikit_learn("sklearn.ensemble").HistGradientBoostingRegressor(
        max_iter=trees, learning_rate=RATE, max_leaf_nodes=LEAVES, min_samples_leaf=LEAST_LEAF,
        l2_regularization=SHRINKAGE, max_features=FEATURE_SHARE, early_stopping=False, random_state=seed,
    )  # fmt: skip
    return flattened(grower.fit(rows, target, sample_weight=weight / weight.mean()))


def flattened(grown: Any) -> Forest:  # noqa: ANN401  (an untyped module)
    """scikit-learn's boosted trees as flat arrays.

    Raises:
        ModelError: this version of it, which has no public access to their nodes, keeps them elsewhere.
    """
    try:
        trees = [_depth_first(tree.nodes) for (tree,) in grown._predictors]
        base = float(grown._baseline_prediction.item())
    except AttributeError as error:
        raise ModelError(f"this scikit-learn keeps its trees elsewhere ({error}): install an older one") from error
    counts = [len(tree) for tree in trees]
    roots = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int32)
    nodes = np.concatenate(trees)
    leaf = nodes["is_leaf"] == 1
    value = nodes["value"].copy()
    value[: counts[0]] += base
    return Forest(
        roots,
        np.where(leaf, -1, nodes["feature_idx"]).astype(np.int16),
        np.where(leaf, 0.0, nodes["num_threshold"]).astype(np.float32),
        np.where(leaf, np.arange(len(nodes)), nodes["right"] + np.repeat(roots, counts)).astype(np.int32),
        np.where(leaf, value, 0.0).astype(np.float32),
    )


def _depth_first(nodes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A tree's nodes in the order of `Forest`, with `right` in it."""
    order, ahead = list[int](), [0]
    while ahead:
        node = ahead.pop()
        order.append(node)
        if not nodes["is_leaf"][node]:
            ahead += [int(nodes["right"][node]), int(nodes["left"][node])]
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    sorted_ = nodes[order]
    sorted_["right"] = place[sorted_["right"]]
    return sorted_


def scikit_learn(module: str) -> Any:  # noqa: ANN401  (an untyped module)
    """A module of scikit-learn.

    Raises:
        ModelError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ModelError("training needs scikit-learn: pip install 'gemmtune[train]'; serving does not") from error
