"""Why a config won: which knobs decided it, what each single change of the winner costs, and what came second.

Everything comes from one study's measurements in the store. An unmeasured change has the learned model's time, or the
family's estimate without a model, corrected by the errors at the measured candidates (`tuner.prediction.correction`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from sqlalchemy import and_, case, distinct, func, select

from space.config import Config
from space.devices import find_profile, profile_named
from space.explain import legal_among, legal_mask
from space.family import family_named, is_own
from space.knobs import KnobValue
from space.plug import Family
from space.problem import Problem
from space.structures import structure_of
from tuner.counts import counted
from tuner.errors import NothingMeasured
from tuner.evidence.legality import forbidden
from tuner.evidence.models import ConfigRow, DeviceRow, MeasurementRow, ProblemRow
from tuner.evidence.physics import out_of_range
from tuner.evidence.picks import LIBRARY
from tuner.evidence.records import Best
from tuner.evidence.store import Store
from tuner.hints import tune_command
from tuner.prediction.correction import Correction
from tuner.prediction.examples import settled
from tuner.prediction.expectation import expected_of
from tuner.prediction.learned import LearnedModel
from workers.measurement import Outcome, Policy, replay_part

#: Share of the measured candidates that count as good: their knobs are compared with those of all.
GOOD: Final = 0.1
#: Fewest correct candidates for a statement about knobs.
LEAST: Final = 20
#: Structures that are listed after the winner's.
RUNNERS_UP: Final = 5
#: Standard deviations within which 90 % of a normal variable lie.
_Z: Final = 1.645


@dataclass(frozen=True, slots=True)
class Change:
    """The winner with one knob changed.

    Attributes:
        source: `measured`, `expected` (model, corrected by the measurements), or `illegal`.
        time_us: None where it is illegal.
        ratio: of its time to the winner's; above 1 is slower.
        low, high: of an expected ratio, 90 %; the ratio itself where it was measured.
    """

    knob: str
    value: KnobValue
    source: Literal["measured", "expected", "illegal"]
    time_us: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class KnobImportance:
    """How much one knob decides.

    Attributes:
        share: of the difference between good candidates and all measured ones (PED-ANOVA); shares of all knobs add
            up to 1.
        cost: time of the fastest candidate with another value of this knob, over that of the winner, or of our fastest
            where the library won: 1.02 means that no other value came within 2 %; None where none was measured.
    """

    knob: str
    share: float
    cost: float | None


@dataclass(frozen=True, slots=True)
class RunnerUp:
    """The fastest candidate of another structure than the winner's and than those before it."""

    config: Config
    time_us: float
    ratio: float


@dataclass(frozen=True, slots=True)
class Why:
    """Why the winner of one problem on one device won.

    Attributes:
        winner: the config that is served; the fastest one where none is.
        served: whether it is served, and so what `best` answers: a best that a rule forbids by now is not.
        time_us: the winner's, on the scale of the screening, like every other time here.
        policy: what times of the screening stand for.
        served_us, served_policy: the served time and what it stands for; None where nothing is served.
        measured: number of correct candidates in the study that rules still allow.
        importances: of the knobs that varied, most important first; none where too few candidates of the family were
            correct.
        changes: of the winner, knob by knob, illegal ones included; none where the library won.
        runners_up: fastest first.
        replay: when a GPU measured the served time, and by which kernels; empty where it was not replayed.
    """

    problem: Problem
    device: str
    winner: Config
    served: bool
    time_us: float
    policy: Policy
    served_us: float | None
    served_policy: Policy | None
    measured: int
    importances: tuple[KnobImportance, ...]
    changes: tuple[Change, ...]
    runners_up: tuple[RunnerUp, ...]
    replay: str = ""


def why(store: Store, problem: Problem, device: str, model: LearnedModel | None = None) -> Why:
    """The store's evidence for the served config of `problem` on `device`, and for those that it beat.

    It speaks of the study of the served config, or of the largest one if that one screened too few candidates.

    Raises:
        NothingMeasured: no study has enough correct candidates.
        ProfileError: nothing was measured on the device, and no known card has this name.
    """
    best = store.best(problem, device)
    if best and forbidden(problem, best.config, device):
        best = None
    run = _run(store, problem, device, best)
    if run is None and device not in {name for name, _ in store.devices()}:
        profile_named(device)
    if run is None or len(run.times) < LEAST:
        count = len(run.times) if run else 0
        were = "was" if count == 1 else "were"
        raise NothingMeasured(
            f"{counted(count, 'correct candidate')} of {problem.title} {were} measured on {device}: {LEAST} are needed "
            "to tell why one won;", tune_command(problem)
        )  # fmt: skip
    times = run.times
    winner = best.config if best else min(times, key=lambda config: (times[config], config.key))
    time_us = times[winner] if winner in times or best is None else _on_scale(store, times, best)
    own = is_own(winner)
    # The knobs of a library's config are not ours: they are compared with our fastest one.
    centre = winner if own else min(times, key=lambda config: (times[config], config.key))
    family = family_named(centre.family)
    alike = {config: us for config, us in times.items() if config.family == family.name}
    alike.setdefault(centre, time_us)
    return Why(
        problem, device, winner, best is not None, time_us, run.policy, best.median_us if best else None,
        best.policy if best else None, len(times), _importances(family, alike, centre),
        tuple(_changes(family, problem, device, alike, centre, model)) if own else (),
        tuple(_runners_up(times, winner, time_us)), replay_part(best.winner.measurement.note) if best else "",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Run:
    """Settled times of our own candidates in one study under one policy, without those that a rule forbids by now."""

    policy: Policy
    times: dict[Config, float]


def _run(store: Store, problem: Problem, device: str, best: Best | None) -> _Run | None:
    """The run that tells most about a best. Reads its measurements only, however many studies there are."""
    chosen = None
    for study, policy, most in _ranked(store, problem, device, best):
        if chosen is not None and most < LEAST:
            break
        wrong = store.refuted_in(study)
        measured = [
            stored.measurement for stored in store.measurements_of(study)
            if stored.measurement.config.family != LIBRARY and stored.measurement.policy == policy
            and not (stored.revoked or stored.measurement.config.key in wrong or out_of_range(stored.measurement))
        ]  # fmt: skip
        run = _Run(Policy(policy), _allowed(problem, device, settled(measured)))
        chosen = chosen or run
        if len(run.times) >= LEAST:
            return run
    return chosen


def _allowed(problem: Problem, device: str, times: dict[Config, float]) -> dict[Config, float]:
    """Those that today's rules accept: others are no answer. All on an unknown device."""
    profile = find_profile(device)
    if profile is None:
        return times
    legal = legal_among(problem, times, profile)
    return {config: us for config, us in times.items() if config in legal}


def _ranked(store: Store, problem: Problem, device: str, best: Best | None) -> list[tuple[int, str, int]]:
    """Studies and policies of our own candidates, and how many were correct.

    Large enough ones come first, then those that screened the best's config, then its own study, then the largest.
    """
    screened = and_(MeasurementRow.stage == "screen", MeasurementRow.outcome == Outcome.CORRECT.value)
    key = best.config.key if best else ""
    query = (
        select(MeasurementRow.study_id, MeasurementRow.policy,
               func.count(distinct(case((screened, MeasurementRow.config_id)))),
               func.max(case((and_(screened, ConfigRow.key == key), 1), else_=0)))
        .join(ProblemRow, ProblemRow.id == MeasurementRow.problem_id)
        .join(DeviceRow, DeviceRow.id == MeasurementRow.device_id)
        .join(ConfigRow, ConfigRow.id == MeasurementRow.config_id)
        .where(ProblemRow.key == problem.key, DeviceRow.name == device, ConfigRow.family != LIBRARY)
        .where(MeasurementRow.policy.in_([policy.value for policy in Policy]))
        .group_by(MeasurementRow.study_id, MeasurementRow.policy)
    )  # fmt: skip
    with store.transaction() as session:
        found = session.execute(query).all()
    ours = best.winner.study_id if best else None
    ranked = sorted(found, key=lambda row: (row[2] >= LEAST, row[3], row[0] == ours, row[2]), reverse=True)
    return [(study, policy, count) for study, policy, count, _ in ranked]


def _on_scale(store: Store, times: dict[Config, float], best: Best) -> float:
    """A served time on the scale of screenings that left it out: by its rivals in the finals that were screened."""
    finals = (one.measurement for one in store.measurements_of(best.winner.study_id, "final"))
    usual = [
        times[one.config] / one.median_us for one in finals
        if one.policy is best.policy and one.outcome is Outcome.CORRECT and one.config in times
    ]  # fmt: skip
    return best.median_us * (statistics.median(usual) if usual else 1.0)


def _importances(family: Family, times: dict[Config, float], winner: Config) -> tuple[KnobImportance, ...]:
    if len(times) < LEAST:
        return ()
    varied = [knob.name for knob in family.knobs if len({config[knob.name] for config in times}) > 1]
    # A service starts sooner without Optuna, which loads scikit-learn too where it is installed: 100 MB.
    import optuna
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
    from optuna.trial import create_trial

    from tuner.prediction.trials import distribution_of

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study()
    known = {name: distribution_of(family.knob_named[name]) for name in varied}
    study.add_trials(
        create_trial(params={name: config[name] for name in varied}, distributions=known, value=time_us)
        for config, time_us in times.items()
    )
    shares = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator(target_quantile=GOOD), params=varied)
    costs = {
        name: min((us for config, us in times.items() if config[name] != winner[name]), default=None) for name in varied
    }
    found = [
        KnobImportance(name, float(shares.get(name, 0.0)), cost / times[winner] if (cost := costs[name]) else None)
        for name in varied
    ]
    return tuple(sorted(found, key=lambda each: (-each.share, -(each.cost or 0), each.knob)))


def _changes(
    family: Family, problem: Problem, device: str, times: dict[Config, float], winner: Config,
    model: LearnedModel | None,
) -> list[Change]:  # fmt: skip
    """The winner with each other value of each knob."""
    moves = [
        (knob.name, value, family.config(winner.knobs | {knob.name: value}))
        for knob in family.knobs for value in knob.domain if value != winner[knob.name]
    ]  # fmt: skip
    configs = [config for _, _, config in moves]
    legal = legal_mask(family, family.columns(problem, configs, find_profile(device)))
    unknown = [config for config, fits in zip(configs, legal, strict=True) if fits and config not in times]
    expected = _expected(problem, device, times, unknown, model) if unknown else {}
    best = times[winner]
    changes = []
    for (knob, value, config), fits in zip(moves, legal, strict=True):
        if config in times:
            ratio = times[config] / best
            changes.append(Change(knob, value, "measured", times[config], ratio, ratio, ratio))
        elif fits:
            mean, doubt = expected[config]
            low, high = (math.exp(mean + sign * _Z * doubt) / best for sign in (-1, 1))
            changes.append(Change(knob, value, "expected", math.exp(mean), math.exp(mean) / best, low, high))
        else:
            changes.append(Change(knob, value, "illegal"))
    return changes


def _expected(
    problem: Problem, device: str, times: dict[Config, float], unknown: Sequence[Config], model: LearnedModel | None
) -> dict[Config, tuple[float, float]]:  # fmt: skip
    """Mean and standard deviation of the log time of candidates that were not measured."""
    asked = [*times, *dict.fromkeys(unknown)]
    prior = expected_of(problem, asked, device, model)
    known = len(times)
    residuals = np.log(list(times.values())) - prior.log_us[:known]
    correction = Correction(prior.features[:known], residuals, prior.doubt)
    mean = prior.log_us[known:] + correction.mean(prior.features[known:])
    spread = np.hypot(correction.spread(prior.features[known:]), correction.noise)
    return {config: (float(mean[row]), float(spread[row])) for row, config in enumerate(asked[known:])}


def _runners_up(times: dict[Config, float], winner: Config, time_us: float) -> list[RunnerUp]:
    fastest: dict[tuple[KnobValue, ...], Config] = {}
    for config in sorted(times, key=lambda each: (times[each], each.key)):
        fastest.setdefault(structure_of(config), config)
    fastest.pop(structure_of(winner), None)
    behind = list(fastest.values())[:RUNNERS_UP]
    return [RunnerUp(config, times[config], times[config] / time_us) for config in behind]
