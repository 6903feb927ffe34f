"""Expectation: expected times of a problem's candidates before any of them is measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from space.config import Config
from space.devices import find_profile
from space.family import family_named
from space.plug import Family
from space.problem import Problem
from tuner.prediction.features import features_of
from tuner.prediction.learned import LearnedModel

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.intp]

#: Standard deviation of log(time / analytic estimate) within a problem: 0.05 to 0.26 on fifty recorded problems, at
#: most 0.10 on half of them.
ANALYTIC_DOUBT: Final = 0.15
#: Bounds of time / estimate for the estimate's first sixteen choices. On the same problems, which the constants were
#: fitted to, 90 % lie between 0.77 and 1.04, and all lie within these bounds.
ANALYTIC_LOW, ANALYTIC_HIGH = 0.70, 1.20
#: Candidates that the whole forest judges; a few trees judge the rest. 1.5 times as many as a search reorders.
CLOSELY: Final = 6144


@dataclass(frozen=True)
class Expectation:
    """Expected time and features of each candidate.

    Attributes:
        features: (candidates, features). Each family has its own columns, with unit variance over its candidates and
            zeros for all others. If several families compete, each also has a constant column.
        log_us: (candidates,), logarithm of the expected time.
        doubt: standard deviation of log(time / expected), apart from an offset common to all.
    """

    features: Floats
    log_us: Floats
    doubt: float


def expected_of(
    problem: Problem, candidates: Sequence[Config], device: str, model: LearnedModel | None = None
) -> Expectation:
    """Expected times of `candidates`, which may belong to several competing families.

    Args:
        model: learned model of this device. A family that it does not know uses its own estimate.
    """
    names = np.array([config.family for config in candidates])
    log_us, doubt = np.zeros(len(candidates)), 0.0
    blocks: list[tuple[Rows, Floats]] = []
    for name in dict.fromkeys(names.tolist()):
        rows = np.flatnonzero(names == name)
        own = [candidates[row] for row in rows.tolist()]
        features, log_us[rows], doubted = _of_family(family_named(name), problem, own, device, model)
        blocks.append((rows, features))
        doubt = max(doubt, doubted)
    return Expectation(_beside(blocks) if len(blocks) > 1 else blocks[0][1], log_us, doubt)


def scaled(features: Floats) -> Floats:
    """Columns with mean 0 and variance 1; constant ones are dropped."""
    spread = features.std(axis=0)
    varies = spread > 1e-9 * np.maximum(np.abs(features).max(axis=0, initial=0), 1)
    kept = features[:, varies]
    return np.asarray((kept - kept.mean(axis=0)) / spread[varies], dtype=np.float64)


def _beside(blocks: Sequence[tuple[Rows, Floats]]) -> Floats:
    """Features of several families, one block per family, each with a constant column for the family's offset."""
    width = sum(block.shape[1] + 1 for _, block in blocks)
    features = np.zeros((sum(len(rows) for rows, _ in blocks), width))
    begin = 0
    for rows, block in blocks:
        end = begin + block.shape[1]
        # The regression divides by the root of the width; this keeps the weight that a family's columns have alone.
        features[rows, begin:end] = block * np.sqrt(width / max(block.shape[1], 1))
        features[rows, end] = np.sqrt(width)
        begin = end + 1
    return features


def _of_family(
    family: Family, problem: Problem, candidates: Sequence[Config], device: str, model: LearnedModel | None
) -> tuple[Floats, Floats, float]:
    """Scaled features, logarithms of the expected times, and their standard deviation."""
    limits = find_profile(device) or family.reference
    features = features_of(family, problem, family.columns(problem, candidates, limits), limits)
    expected, doubt = features.estimate_us, ANALYTIC_DOUBT if family.grounded else 2 * ANALYTIC_DOUBT
    if model is not None and (learned := model.of(family.name, problem)):
        predicted = learned.predict_features(problem, features, CLOSELY)
        expected, doubt = predicted.time_us, predicted.doubt
    return scaled(features.of_candidate), np.log(expected), doubt
