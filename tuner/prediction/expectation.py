"""Expectation: what is thought of a problem's candidates before any of them is measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from space.config import Config
from space.devices import DeviceProfile, find_profile, reference_profile
from space.family import Family
from space.problem import Problem
from tuner.prediction.coordinates import Coordinates
from tuner.prediction.features import features_of
from tuner.prediction.learned import LearnedModel
from tuner.prediction.pool import Floats, Pool, Thin, scaled

Rows = npt.NDArray[np.intp]

#: Standard deviation of log(time / analytic estimate) inside a problem: fifty recorded ones gave 0.05 to 0.26, half of
#: them up to 0.10.
ANALYTIC_DOUBT: Final = 0.15
#: Where the times of its first choices lie, as multiples of the estimate. Of the same problems, to which its constants
#: were fitted, 90 % of the first sixteen lie within 0.77 and 1.04, and all within these.
ANALYTIC_LOW, ANALYTIC_HIGH = 0.70, 1.20
#: Candidates that the learned model looks at closely: half as many again as a search believes anything of.
CLOSELY: Final = 6144
#: How far candidates of two families lie apart, in standard deviations of features: too far to tell of one another.
APART: Final = 40.0


def limits_of(device: str, arch: str) -> DeviceProfile | None:
    """Rates of a device; those of another of its arch where it has none of its own; None where nothing is near."""
    return find_profile(device) or reference_profile(arch)


def pool_of(
    problem: Problem, candidates: Sequence[Config], device: str, model: LearnedModel | None = None
) -> Pool:
    """The candidates as a pool that `LegalSampler` proposes from.

    Args:
        candidates: legal, none twice; of one family, or of several that compete.
        model: of this device; the analytic model expects where there is none, or for other families than the model's.
    """
    stand = Coordinates.of(candidates)
    names = tuple(stand.distributions)
    values = [stand.values(config) for config in candidates]
    expected, doubt = np.zeros(len(candidates)), 0.0
    blocks: list[tuple[Rows, Thin]] = []
    for family in stand.families:
        rows = np.array([row for row, config in enumerate(candidates) if config.family == family.name], dtype=np.intp)
        own = [candidates[row] for row in rows]
        features, expected[rows], doubted = _of_family(family, problem, own, device, model)
        blocks.append((rows, features))
        doubt = max(doubt, doubted)
    joined = _beside(blocks) if len(blocks) > 1 else blocks[0][1]
    return Pool(names, values, stand.distributions, joined, expected, doubt)


def _beside(blocks: Sequence[tuple[Rows, Thin]]) -> Thin:
    """Features of several families: each tells its own candidates apart as it would alone; all others are far away."""
    width = sum(block.shape[1] + 1 for _, block in blocks)
    features = np.zeros((sum(len(rows) for rows, _ in blocks), width), dtype=np.float32)
    begin = 0
    for rows, block in blocks:
        end = begin + block.shape[1]
        # Distances count per feature, of which there are more now.
        features[rows, begin:end] = block * np.sqrt(width / max(block.shape[1], 1))
        features[rows, end] = APART
        begin = end + 1
    return features


def _of_family(
    family: Family, problem: Problem, candidates: Sequence[Config], device: str, model: LearnedModel | None
) -> tuple[Thin, Floats, float]:
    """Scaled features, log of the expected times, and how far these are doubted."""
    columns = family.columns(problem, candidates)
    limits = limits_of(device, min(family.targets))
    if limits is None:
        knobs = np.column_stack([columns[knob.name] for knob in family.knobs]).astype(np.float64)
        return scaled(knobs), np.zeros(len(candidates)), 2 * ANALYTIC_DOUBT
    features = features_of(family, problem, columns, limits)
    expected, doubt = features.estimate_us, ANALYTIC_DOUBT if family.grounded else 2 * ANALYTIC_DOUBT
    if model is not None and model.facts.family == family.name:
        predicted = model.predict_features(problem, features, CLOSELY)
        expected, doubt = predicted.time_us, predicted.doubt
    return scaled(features.of_candidate), np.log(expected), doubt
