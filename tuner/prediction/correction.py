"""Correction: estimates from measured candidates by how much the expected times of all candidates err.

Bayesian linear regression of log(time / expected) on the candidates' features, after the median has been taken off as
an offset common to all: Rasmussen & Williams, Gaussian Processes for Machine Learning (2006), §2.1.1.

Matrix products go through `einsum`, on one thread: a BLAS spreads products this small over every core, and waits for
its threads longer than the product takes where compilers keep the cores busy.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

#: Variance of what the features do not explain, as a share of the variance that they do.
NOISE: Final = 0.3
#: How many measured residuals the stated doubt is worth when its scale is estimated.
DOUBT_TRIALS: Final = 8
#: A failed candidate counts as this many standard deviations slower than expected; residuals are clipped there too.
FAILED: Final = 3.0
#: Share of the noise that draws give each candidate. The fastest of many draws exaggerates noise: on fifty recorded
#: problems all of it promised seven times the gain that was there.
OWN: Final = 0.3


class Correction:
    """The posterior over the errors of the expected times.

    Args:
        features: (measured, features), each column of unit variance over all candidates.
        residuals: (measured,), log(time / expected); NaN for a candidate that failed.
        doubt: standard deviation of log(time / expected) before anything was measured.

    Attributes:
        offset: common to all candidates.
        noise: standard deviation of what the features do not explain.
    """

    def __init__(self, features: Floats, residuals: Floats, doubt: float) -> None:
        self._width = math.sqrt(max(features.shape[1], 1))
        rows, known = features / self._width, np.isfinite(residuals)
        self.offset = float(np.median(residuals[known])) if known.any() else 0.0
        centred = np.where(known, residuals - self.offset, np.inf).clip(-FAILED * doubt, FAILED * doubt)
        gram = np.einsum("ki,kj->ij", rows, rows) + NOISE * np.eye(features.shape[1])
        self._inverse = np.linalg.inv(gram)
        seen = np.einsum("ki,k->i", rows, centred)
        self._weights = np.einsum("ij,j->i", self._inverse, seen)
        square = float((centred**2).sum() - (seen * self._weights).sum()) / NOISE
        scale = math.sqrt((DOUBT_TRIALS * doubt**2 + square) / (DOUBT_TRIALS + len(residuals)))
        self.noise = scale * math.sqrt(NOISE)

    def mean(self, features: Floats) -> Floats:
        """Expected log(time / expected) of each row."""
        return np.asarray(self.offset + np.einsum("ij,j->i", features / self._width, self._weights))

    def spread(self, features: Floats) -> Floats:
        """Standard deviation of `mean`; a candidate's own time has `noise` on top."""
        rows = features / self._width
        variance = np.einsum("ij,ij->i", np.einsum("ij,jk->ik", rows, self._inverse), rows)
        return np.asarray(self.noise * np.sqrt(np.maximum(variance, 0)))

    def draws(self, features: Floats, count: int, seed: int) -> Floats:
        """(count, rows): joint draws of log(time / expected)."""
        rng = np.random.default_rng(seed)
        root = np.linalg.cholesky(self._inverse)
        weights = self._weights + self.noise * np.einsum("ki,ji->kj", rng.standard_normal((count, len(root))), root)
        common = np.einsum("kj,ij->ki", weights, features / self._width)
        return np.asarray(self.offset + common + OWN * self.noise * rng.standard_normal((count, len(features))))
