"""Gain: a campaign's speedup over the library, by problem and for the program that runs the problems."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.evidence.records import Ratio


@dataclass(frozen=True, slots=True)
class Gain:
    """Speedup of our kernels over cuBLASLt's first choice, over the problems that they won and that have both times.

    Attributes:
        problems: their number.
        geometric_mean: of the ratios library time / our time.
        faster, tied, slower: counts; a tie has 1 within its 95 % interval.
        least, most: extremes of the ratios.
    """

    problems: int
    geometric_mean: float
    faster: int
    tied: int
    slower: int
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class Won:
    """Share of a program's GEMM time that tuning won, each problem as often as it runs.

    Attributes:
        share: (library's first choice - ours) / library's first choice, over the problems with both times.
        library_us, ours_us: those times.
        problems: their number.
    """

    share: float
    library_us: float
    ours_us: float
    problems: int


def gain_of(ratios: Sequence[Ratio]) -> Gain | None:
    """The gain over these ratios; None without any."""
    if not ratios:
        return None
    values = [ratio.value for ratio in ratios]
    return Gain(
        len(values),
        statistics.geometric_mean(values),
        sum(ratio.low > 1 for ratio in ratios),
        sum(ratio.low <= 1 <= ratio.high for ratio in ratios),
        sum(ratio.high < 1 for ratio in ratios),
        min(values),
        max(values),
    )


def won_of(done: Sequence[tuple[Ratio, int, float | None]]) -> Won | None:
    """The share that problems won together, from each one's ratio to the library, count and time."""
    timed = [(ratio, count, median_us) for ratio, count, median_us in done if median_us]
    ours = sum(count * median_us for _, count, median_us in timed)
    library = sum(count * median_us * ratio.value for ratio, count, median_us in timed)
    return Won((library - ours) / library, library, ours, len(timed)) if timed else None
