"""Belief: a Gaussian process over a finite list of candidates, kept up to date trial by trial.

Values are logarithms of times, so that errors are relative. What is expected of each candidate comes from
outside (the analytic model or the learned one); the process learns by how much the expectation errs, as an
offset common to all candidates plus a smooth function of their features. Its scale is estimated as trials
come in, from an inverse-gamma prior whose mode is what the expectation's author said.

Sums go by `einsum`, on one thread: a BLAS spreads such small ones over every core, and where compilers keep those
busy it waits longer for its threads than the sum takes.

Equations: Rasmussen & Williams, Gaussian Processes for Machine Learning (2006), §2.2 and §4.2.1 (Matérn 5/2);
expected improvement: Jones, Schonlau & Welch, Efficient Global Optimization (1998), eq. 15.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Thin = npt.NDArray[np.float32]
Rows = npt.NDArray[np.intp]

#: Standard deviation of the offset, and of a measurement's noise, as multiples of the process's own scale.
OFFSET: Final = 4.0
NOISE: Final = 0.15
#: How many trials the stated doubt of the expectation is worth against measured residuals.
DOUBT_TRIALS: Final = 8
#: How many standard deviations slower than thought a failed candidate counts; residuals are clipped there too.
FAILED: Final = 3.0
#: Draws from the joint belief behind `remaining`, and the most promising candidates that they cover.
DRAWS: Final = 512
COVERED: Final = 192


class Belief:
    """What is thought of each candidate's log time, given the trials so far.

    Args:
        features: one row a candidate, already scaled to unit variance; more alike means closer.
        expected: log time expected of each before any trial; only differences matter.
        doubt: standard deviation of log(time / expected), an offset common to all aside.
    """

    def __init__(self, features: Thin, expected: Floats, doubt: float) -> None:
        self._features = np.ascontiguousarray(features, dtype=np.float32)
        self._norms = np.einsum("ij,ij->i", self._features, self._features)
        self._expected = expected
        self._doubt = doubt
        size = len(expected)
        self._rows: list[int] = []
        self._told: list[float | None] = []
        self._factor = np.zeros((64, 64))
        self._whitened = np.zeros((64, size), dtype=np.float32)
        self._weights = np.zeros(64)
        self._failed: set[int] = set()
        #: Variance in units of the scale, offset included.
        self._variance = np.full(size, 1.0 + OFFSET**2)
        self._mean = expected.astype(np.float64, copy=True)
        self._stale_from = 0
        self._scale = doubt
        #: Likeness of each candidate to the most alike of those that were visited.
        self.closest: Thin = np.zeros(size, dtype=np.float32)

    def __len__(self) -> int:
        return len(self._rows)

    def likeness(self, row: int) -> Thin:
        """Prior correlation of one candidate with all, offset aside; 1 with itself."""
        products = np.einsum("ij,j->i", self._features, self._features[row])
        return self._matern(self._norms + self._norms[row] - 2 * products)

    def _likeness_among(self, rows: Rows) -> Floats:
        some, norms = self._features[rows], self._norms[rows]
        return self._matern(norms[:, None] + norms[None, :] - 2 * np.einsum("ik,jk->ij", some, some)).astype(np.float64)

    def _matern(self, squared: Thin) -> Thin:
        distance = np.sqrt(np.maximum(squared, 0) * np.float32(5 / max(self._features.shape[1], 1)))
        return np.asarray((1 + distance + distance * distance / 3) * np.exp(-distance), dtype=np.float32)

    def visit(self, row: int) -> int:
        """Takes note that a candidate is being tried; returns the trial's place for `tell`.

        Until its value is told it counts as what is expected of it: it narrows the belief around itself and
        moves nothing, so that the proposals of one batch keep their distance.
        """
        place = len(self._rows)
        if place == len(self._factor):
            self._grow()
        likeness = self.likeness(row)
        np.maximum(self.closest, likeness, out=self.closest)
        known = self._whitened[:place]
        column = known[:, row].astype(np.float64)
        pivot = math.sqrt(max(1.0 + OFFSET**2 + NOISE**2 - float(column @ column), NOISE**2 / 4))
        self._factor[place, :place] = column
        self._factor[place, place] = pivot
        explained = np.einsum("ij,i->j", known, known[:, row])
        self._whitened[place] = (likeness + np.float32(OFFSET**2) - explained) / np.float32(pivot)
        self._variance -= self._whitened[place].astype(np.float64) ** 2
        np.maximum(self._variance, 1e-9, out=self._variance)
        self._rows.append(row)
        self._told.append(None)
        return place

    def tell(self, place: int, value: float) -> None:
        """The log time of the trial at `place`."""
        self._told[place] = value - float(self._expected[self._rows[place]])
        self._stale_from = min(self._stale_from, place)

    def fail(self, place: int) -> None:
        """The trial at `place` gave no time: what is like it is thought to be slow, as far as nothing else is known."""
        self._failed.add(place)
        self._stale_from = min(self._stale_from, place)

    def moments(self) -> tuple[Floats, Floats]:
        """Mean and standard deviation of each candidate's log time."""
        if self._stale_from < len(self._rows):
            self._solve()
        return self._mean, self._scale * np.sqrt(self._variance)

    def improvement(self, incumbent: float) -> Floats:
        """Expected improvement of each candidate on the incumbent's log time."""
        mean, spread = self.moments()
        return expected_improvement((incumbent - mean) / spread) * spread

    def remaining(self, untried: Rows, incumbent: float, margin: float, seed: int) -> tuple[float, float]:
        """Chance that an untried candidate is faster than the incumbent by more than `margin`, and the
        expected gain of trying all of them; both as shares, the gain of time.

        From joint draws over the most promising candidates, so that candidates that are alike count once.
        """
        if not len(untried):
            return 0.0, 0.0
        mean, spread = self.moments()
        promising = untried[np.argsort(((mean - incumbent) / spread)[untried], kind="stable")[:COVERED]]
        seen = self._whitened[: len(self._rows), promising].astype(np.float64)
        prior = self._likeness_among(promising) + OFFSET**2
        joint = (prior - np.einsum("ki,kj->ij", seen, seen)) * self._scale**2
        root = _root(joint, (1e-3 * self._scale) ** 2)
        draws = np.einsum("ij,kj->ik", np.random.default_rng(seed).standard_normal((DRAWS, len(promising))), root)
        fastest = (mean[promising] + draws).min(axis=1)
        chance = float(np.mean(fastest < incumbent + math.log1p(-margin)))
        return chance, float(np.mean(np.maximum(-np.expm1(fastest - incumbent), 0)))

    def _solve(self) -> None:
        """Forward substitution from the first trial whose value changed; pending ones carry no residual."""
        since, until = self._stale_from, len(self._rows)
        before = self._weights[since:until].copy()
        for place in range(since, until):
            told = self._told[place]
            if place in self._failed:
                self._weights[place] = FAILED * self._doubt
            elif told is None:
                self._weights[place] = 0.0
            else:
                guess = float(self._factor[place, :place] @ self._weights[:place])
                self._weights[place] = (told - guess) / self._factor[place, place]
        change = (self._weights[since:until] - before).astype(np.float32)
        self._mean = self._mean + np.einsum("i,ij->j", change, self._whitened[since:until])
        self._stale_from = until
        self._scale = self._estimated_scale()

    def _estimated_scale(self) -> float:
        """From the residuals told: the first one is the offset's and says nothing, the largest are clipped."""
        told = [place for place, residual in enumerate(self._told) if residual is not None][1:]
        squares = np.minimum(self._weights[told] ** 2, (FAILED * self._doubt) ** 2).sum()
        return math.sqrt((DOUBT_TRIALS * self._doubt**2 + float(squares)) / (DOUBT_TRIALS + len(told)))

    def _grow(self) -> None:
        size = 2 * len(self._factor)
        factor = np.zeros((size, size))
        factor[: len(self._factor), : len(self._factor)] = self._factor
        whitened = np.zeros((size, self._whitened.shape[1]), dtype=np.float32)
        whitened[: len(self._whitened)] = self._whitened
        weights = np.zeros(size)
        weights[: len(self._weights)] = self._weights
        self._factor, self._whitened, self._weights = factor, whitened, weights


def _root(covariance: Floats, least: float) -> Floats:
    """Its Cholesky factor; variances that rounding took below `least` are that."""
    root = np.zeros_like(covariance)
    for place in range(len(covariance)):
        row = root[place, :place]
        below = covariance[place:, place] - np.einsum("ij,j->i", root[place:, :place], row)
        root[place:, place] = below / math.sqrt(max(float(below[0]), least))
        root[place, place] = math.sqrt(max(float(below[0]), least))
    return root


def expected_improvement(z: Floats) -> Floats:
    """E max(0, z + x) of a standard normal x; the normal's tail by Abramowitz & Stegun 26.2.17 (error < 8e-8)."""
    density = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    t = 1 / (1 + 0.2316419 * np.abs(z))
    tail = density * t * (0.31938153 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    below = np.where(z > 0, 1 - tail, tail)
    return np.asarray(np.maximum(z * below + density, 0))
