"""Expectation: what is thought of a problem's candidates before any of them is measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from space.arch import DEVICES, DeviceLimits
from space.config import Config
from space.family import Family
from space.problem import Problem
from tuner.model.features import features_of
from tuner.model.learned import LearnedModel
from tuner.sampler import distributions
from tuner.search.pool import Pool, scaled

#: Standard deviation of log(time / analytic estimate) inside a problem: seven recorded problems gave 0.10 to 0.17.
ANALYTIC_DOUBT: Final = 0.15
#: Where the times of its first choices lie, as multiples of the estimate (90 %): the same problems.
ANALYTIC_LOW, ANALYTIC_HIGH = 0.85, 1.60


def limits_of(device: str, arch: str) -> DeviceLimits | None:
    """Rates of a device; those of another of its arch where it has none of its own; None where nothing is near."""
    return DEVICES.get(device) or next((limits for limits in DEVICES.values() if limits.arch == arch), None)


def pool_of(
    family: Family, problem: Problem, candidates: Sequence[Config], device: str, model: LearnedModel | None = None
) -> Pool:
    """The candidates as a pool that `LegalSampler` proposes from.

    Args:
        candidates: legal, none twice.
        model: of this device and family; the analytic model expects where there is none.
    """
    values = [tuple(value for _, value in config.values) for config in candidates]
    names = tuple(knob.name for knob in family.knobs)
    columns = family.columns(problem, candidates)
    limits = limits_of(device, family.arch)
    if limits is None:
        knobs = np.column_stack([columns[name] for name in names]).astype(np.float64)
        return Pool(names, values, distributions(family), scaled(knobs), np.zeros(len(values)), 2 * ANALYTIC_DOUBT)
    features = features_of(family, problem, columns, limits)
    expected, doubt = features.estimate_us, ANALYTIC_DOUBT
    if model is not None:
        predicted = model.predict_features(problem, features)
        expected, doubt = predicted.time_us, predicted.doubt
    return Pool(names, values, distributions(family), scaled(features.of_candidate), np.log(expected), doubt)
