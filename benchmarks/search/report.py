"""Tables of the share of the best against the number of measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

#: Numbers of measurements that the table shows.
SHOWN: Final = (1, 4, 8, 16, 32, 40, 64, 96, 128)
#: A candidate this close to the best counts as found.
WITHIN: Final = 0.98


@dataclass(frozen=True)
class Curves:
    """All runs of one strategy: one row a problem and seed, the share of the best after 1, 2, … measurements."""

    shares: Floats

    @property
    def mean(self) -> Floats:
        """Geometric mean over problems and seeds."""
        return np.asarray(np.exp(np.log(self.shares).mean(axis=0)))

    @property
    def low(self) -> Floats:
        """5th percentile over problems and seeds."""
        return np.asarray(np.quantile(self.shares, 0.05, axis=0))

    @property
    def worst(self) -> Floats:
        """The worst of all problems and seeds."""
        return np.asarray(self.shares.min(axis=0))

    @property
    def to_within(self) -> Floats:
        """Measurements of each run until it was within 2 %, or its length if it never was."""
        reached = self.shares >= WITHIN
        counts = np.where(reached.any(axis=1), reached.argmax(axis=1) + 1, self.shares.shape[1])
        return np.asarray(counts, dtype=np.float64)

    @property
    def never_within(self) -> float:
        """Share of the runs that never were."""
        return float((self.shares[:, -1] < WITHIN).mean())


def table(curves: Mapping[str, Curves], runs: Mapping[str, int]) -> str:
    """Geometric mean / 5th percentile / worst at each number shown, and how many it takes to be within 2 %."""
    shown = [count for count in SHOWN if all(count <= each.shares.shape[1] for each in curves.values())]
    head = ["strategy", "runs", *(str(count) for count in shown), "to 2 %: mean", "median", "never"]
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
    for name, each in curves.items():
        cells = [
            f"{each.mean[count - 1]:.3f} / {each.low[count - 1]:.3f} / {each.worst[count - 1]:.3f}" for count in shown
        ]
        within = each.to_within
        ends = [f"{within.mean():.1f}", f"{np.median(within):.0f}", f"{each.never_within:.0%}"]
        lines.append("| " + " | ".join([name, str(runs[name]), *cells, *ends]) + " |")
    return "\n".join(lines)


def by_problem(curves: Mapping[str, Mapping[str, Curves]], strategies: Sequence[str], count: int) -> str:
    """Geometric mean over seeds after `count` measurements, one row a problem."""
    problems = list(dict.fromkeys(problem for name in strategies for problem in curves[name]))
    lines = [f"After {count} measurements, by problem:", ""]
    lines += ["| problem | " + " | ".join(strategies) + " |", "| --- |" + " ---: |" * len(strategies)]
    for problem in problems:
        found = [curves[name].get(problem) for name in strategies]
        cells = [f"{each.mean[count - 1]:.3f}" if each else "–" for each in found]
        lines.append(f"| {problem} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
