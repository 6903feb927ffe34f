"""The correction of expected times: it learns what the features explain, and says how sure it is."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.prediction.correction import FAILED, OWN, Correction
from tuner.prediction.expectation import scaled

RNG = np.random.default_rng(1)
FEATURES = scaled(RNG.standard_normal((400, 6)))
TRUTH = FEATURES @ np.array([0.1, -0.05, 0.02, 0.0, 0.0, 0.0])


def test_it_learns_what_the_features_explain_and_an_offset() -> None:
    correction = Correction(FEATURES[:60], TRUTH[:60] + 0.5, 0.1)
    assert correction.offset == pytest.approx(0.5 + np.median(TRUTH[:60]))
    error = correction.mean(FEATURES[60:]) - TRUTH[60:] - 0.5
    assert error.std() < 0.2 * TRUTH[60:].std()


def test_it_is_surer_of_what_resembles_the_measured_ones() -> None:
    few, many = (Correction(FEATURES[:count], TRUTH[:count], 0.1) for count in (4, 60))
    assert few.spread(FEATURES[:4]).mean() < few.spread(FEATURES[60:]).mean()
    assert many.spread(FEATURES[60:]).mean() < few.spread(FEATURES[60:]).mean()


def test_draws_have_the_mean_and_the_spread_that_are_stated() -> None:
    correction = Correction(FEATURES[:30], TRUTH[:30], 0.1)
    draws = correction.draws(FEATURES[30:34], 20_000, seed=0)
    assert draws.shape == (20_000, 4)
    assert draws.mean(axis=0) == pytest.approx(correction.mean(FEATURES[30:34]), abs=0.003)
    stated = np.hypot(correction.spread(FEATURES[30:34]), OWN * correction.noise)
    assert draws.std(axis=0) == pytest.approx(stated, rel=0.05)


def test_a_failed_candidate_counts_as_a_slow_one() -> None:
    residuals = np.where(FEATURES[:60, 0] > 1, np.nan, 0.0)
    correction = Correction(FEATURES[:60], residuals, 0.1)
    like = FEATURES[60:, 0] > 1
    assert correction.mean(FEATURES[60:][like]).min() > correction.mean(FEATURES[60:][~like]).mean()
    nothing = Correction(FEATURES[:5], np.full(5, np.nan), 0.1)
    assert nothing.offset == 0.0
    assert nothing.mean(FEATURES[:5]).max() <= FAILED * 0.1


def test_features_without_any_column_leave_the_offset() -> None:
    correction = Correction(np.zeros((3, 0)), np.array([0.1, 0.2, 0.4]), 0.1)
    assert correction.mean(np.zeros((2, 0))).tolist() == [pytest.approx(0.2)] * 2
