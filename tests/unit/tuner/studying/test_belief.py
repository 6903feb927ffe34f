"""Belief: agrees with the textbook's equations, and says honestly how much is left to gain."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

from tuner.studying.belief import NOISE, OFFSET, Belief, expected_improvement

RNG = np.random.default_rng(5)
FEATURES = RNG.standard_normal((60, 4)).astype(np.float32)
EXPECTED = RNG.standard_normal(60) * 0.1


def exact(rows: list[int], values: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance, in units of the scale, by inverting the whole matrix (Rasmussen & Williams, eq. 2.25)."""
    squared = ((FEATURES[:, None, :] - FEATURES[None, :, :]) ** 2).sum(axis=2)
    distance = np.sqrt(squared * 5 / FEATURES.shape[1])
    covariance = (1 + distance + distance**2 / 3) * np.exp(-distance) + OFFSET**2
    inverse = np.linalg.inv(covariance[np.ix_(rows, rows)] + NOISE**2 * np.eye(len(rows)))
    residual = np.array(values) - EXPECTED[rows]
    mean = EXPECTED + covariance[:, rows] @ inverse @ residual
    return mean, np.diag(covariance - covariance[:, rows] @ inverse @ covariance[rows])


def test_moments_are_those_of_the_textbook_whatever_the_order_of_news() -> None:
    belief = Belief(FEATURES, EXPECTED, doubt=0.1)
    rows = list(range(0, 60, 2)) * 3  # more than the first allocation, each one thrice
    places = [belief.visit(row) for row in rows]
    values = [EXPECTED[row] + 0.2 + 0.05 * math.sin(place) for place, row in enumerate(rows)]
    for place in [*places[40:], *places[:40]]:
        belief.tell(place, values[place])
        if place % 7 == 0:
            belief.moments()
    mean, spread = belief.moments()
    right, variance = exact(rows, values)
    assert mean == pytest.approx(right, abs=2e-3)
    scale = spread[1] / math.sqrt(variance[1])
    assert spread == pytest.approx(scale * np.sqrt(np.maximum(variance, 1e-9)), rel=0.02, abs=2e-3)


def test_a_running_trial_narrows_the_belief_and_moves_nothing() -> None:
    belief = Belief(FEATURES, EXPECTED, doubt=0.1)
    belief.tell(belief.visit(0), 0.3)
    mean, spread = (moment.copy() for moment in belief.moments())
    belief.visit(7)
    after_mean, after_spread = belief.moments()
    assert after_mean == pytest.approx(mean)
    assert (after_spread <= spread + 1e-12).all()
    assert after_spread[7] < 0.5 * spread[7]


def test_a_failure_makes_its_neighbours_look_slow_until_they_are_measured() -> None:
    features = np.vstack([FEATURES, FEATURES[3] + 0.01]).astype(np.float32)
    expected = np.append(EXPECTED, EXPECTED[3])
    belief = Belief(features, expected, doubt=0.1)
    for row in (10, 20, 30):
        belief.tell(belief.visit(row), expected[row])
    before = belief.moments()[0][60]
    belief.fail(belief.visit(3))
    feared = belief.moments()[0][60]
    assert feared > before + 0.1
    belief.tell(belief.visit(60), expected[60] - 0.2)
    assert belief.moments()[0][60] < feared - 0.1


def test_the_scale_follows_the_residuals() -> None:
    calm, wild = (Belief(FEATURES, EXPECTED, doubt=0.1) for _ in range(2))
    for row in range(40):
        calm.tell(calm.visit(row), EXPECTED[row])
        wild.tell(wild.visit(row), EXPECTED[row] + 0.5 * RNG.standard_normal())
    assert 3 * calm.moments()[1][50] < wild.moments()[1][50]


def test_expected_improvement_is_that_of_a_normal_variable() -> None:
    normal = NormalDist()
    for z in (-6.0, -1.0, 0.0, 0.3, 4.0):
        right = z * normal.cdf(z) + normal.pdf(z)
        assert expected_improvement(np.array([z]))[0] == pytest.approx(right, abs=1e-6)


def test_what_remains_shrinks_to_nothing_as_candidates_are_tried() -> None:
    belief = Belief(FEATURES, EXPECTED, doubt=0.1)
    untried = np.arange(60)
    chances = []
    for count in (5, 30, 58):
        while len(belief) < count:
            belief.tell(belief.visit(len(belief)), EXPECTED[len(belief) - 1])
        best = float(EXPECTED[:count].min())
        chance, gain = belief.remaining(untried[count:], best, 0.02, seed=0)
        assert 0 <= gain <= chance * 0.9 + 0.02
        chances.append(chance)
    assert chances == sorted(chances, reverse=True)
    assert belief.remaining(untried[:0], 0.0, 0.02, seed=0) == (0.0, 0.0)


def test_what_remains_is_what_one_candidate_promises_and_its_twin_adds_nothing() -> None:
    features = np.vstack([FEATURES, FEATURES[-1:]])
    expected = np.append(EXPECTED, EXPECTED[-1])
    belief = Belief(features, expected, doubt=0.1)
    for row in range(20):
        belief.tell(belief.visit(row), expected[row])
    mean, spread = belief.moments()
    last, twin = len(expected) - 2, len(expected) - 1
    incumbent = float(mean[last]) + 0.3 * float(spread[last])
    promised = NormalDist(float(mean[last]), float(spread[last])).cdf(incumbent + math.log1p(-0.02))
    alone, _ = belief.remaining(np.array([last]), incumbent, 0.02, seed=0)
    both, _ = belief.remaining(np.array([last, twin]), incumbent, 0.02, seed=0)
    assert alone == pytest.approx(promised, abs=0.08)
    assert both == pytest.approx(alone, abs=0.01)
