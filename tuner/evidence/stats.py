"""Statistics of samples: ratios with bootstrap intervals, and confidence in a winner."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from space.devices import find_profile
from space.kind import problem_from_key
from space.rank import may_reach_power_limit, power_decides
from tuner.evidence.records import Ratio
from workers.measurement import Measurement, Policy, median_interval

RESAMPLES: Final = 2_000
#: Samples that are drawn at once: a report may hold thousands, of which all that are drawn would fill the memory.
_DRAWN_AT_ONCE: Final = 50_000
#: No finals have so few samples of a policy whose scatter they show: a replay has, where a finalist was only screened.
_FEW: Final = 2
CONFIDENCE: Final = 0.95
#: Standard deviations of a normal distribution on each side of its middle that hold that share.
NORMAL: Final = 1.96
#: The same where the standard deviation is that of two, three … values: Student's t for one, two … degrees of freedom.
_STUDENT: Final = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
#: Relative standard deviation of a block of `sustained`, of one kernel in one run: blocks are too few to show it. In
#: three runs on H100s where power decides it was 0.24, 0.33 and 0.26 %. Two blocks have intervals of 0.6 % on each side
#: by that; 57, 55 and 54 of 62 held the ratio to the library that a torch program then measured
#: (benchmarks/results/finals_h100.md, which has the bootstrap's alone too).
LONG_SCATTER: Final = 0.003
#: Of blocks of shorter products. Where power may limit the clock 63 rivals' blocks of 0.85 s scattered by 0.13 % on an
#: H200 (benchmarks/results/finals_h200.md), and those of 0.25 s, which older finals have, by 0.8 to 1.2 %: this stands
#: between, so older intervals are too narrow. Where it can't, 0.6, 1.0, 0.5 and 0.4 %.
SHORT_SCATTER, BRIEF_SCATTER = 0.005, 0.008
#: Fixed, so that intervals depend on the samples alone.
_SEED: Final = 20_241

Samples = Sequence[float]


@lru_cache(maxsize=4_096)
def scatter_of(policy: Policy, problem_key: str, device: str) -> float:
    """Relative standard deviation of a sample under a policy; 0 where samples are many enough to show it.

    Args:
        device: GPU model.

    Raises:
        ProblemError: no problem has this key.
    """
    if policy is not Policy.SUSTAINED:
        return 0.0
    problem, profile = problem_from_key(problem_key), find_profile(device)
    if profile is None:
        # Nobody knows what its power limits, nor how long its blocks were.
        return max(SHORT_SCATTER, BRIEF_SCATTER)
    if not may_reach_power_limit(problem, profile):
        return BRIEF_SCATTER
    return LONG_SCATTER if power_decides(problem, profile) else SHORT_SCATTER


def ratio(baseline_us: Samples, ours_us: Samples, scatter: float = 0.0, *, one_run: bool = True) -> Ratio:
    """How many times as fast as a baseline, with its 95 % bootstrap interval.

    Samples of one run and of equal length are paired (sample i of both from turn i): the ratio is the median of the
    turns' ratios, and turns are resampled, so that drift common to both cancels. Otherwise it is that of the medians.
    Where power decides, ratios of ten turns of `chain` repeat from tune to tune within 0.2 % (rms), those of medians
    within 1.1 % (benchmarks/results/tuned_twice_h100.md): the limiter moves the clock from turn to turn.

    Args:
        scatter: relative standard deviation of one sample, known from other runs. Few samples can't show it, so the
            interval is at least as wide as it makes theirs, and a single one counts.
        one_run: whether both were taken in the same finals.
    """
    baseline, ours = np.asarray(baseline_us), np.asarray(ours_us)
    paired = one_run and len(baseline) == len(ours) and (len(ours) > _FEW or scatter > 0)
    rng = np.random.default_rng(_SEED)
    if paired:
        turns = baseline / ours
        value, drawn = float(np.median(turns)), _resampled(turns, rng)
    else:
        value = float(np.median(baseline) / np.median(ours))
        drawn = _resampled(baseline, rng) / _resampled(ours, rng)
    (low, high), reach = _interval(drawn), _reach(baseline_us, ours_us, scatter)
    return Ratio(value, min(low, value * (1 - reach)), max(high, value * (1 + reach)), paired)


def by_turn(rivals_us: Sequence[Samples]) -> list[list[float]]:
    """Each rival's samples as shares of their turn's median, so that turns can be compared with one another.

    Rivals of equal length are taken as paired (sample i of each from turn i); others stay as they are.
    """
    if len({len(samples) for samples in rivals_us}) > 1:
        return [list(samples) for samples in rivals_us]
    times = np.asarray(rivals_us)
    shares: list[list[float]] = (times / np.median(times, axis=0)).tolist()
    return shares


def median_interval_us(measurement: Measurement, device: str) -> tuple[float, float]:
    """95 % interval of a measurement's median, in microseconds, as `median_interval`. Of few samples whose scatter is
    known, it is at least as wide as that makes it.
    """
    scatter = scatter_of(measurement.policy, measurement.problem_key, device)
    scattered = NORMAL * scatter / math.sqrt(len(measurement.samples_us))
    (low, high), middle = median_interval(measurement.samples_us), measurement.median_us
    return min(low, middle * (1 - scattered)), max(high, middle * (1 + scattered))


def mean_interval(values: Samples) -> tuple[float, float]:
    """95 % interval of the mean that values are drawn about, normally distributed (Student's t).

    Args:
        values: at least two.
    """
    taken, free = np.asarray(values), len(values) - 1
    # From ten degrees on, the first terms of its expansion about the normal's quantile are within 0.2 %.
    cube, fifth = NORMAL**3, NORMAL**5
    series = NORMAL + (cube + NORMAL) / (4 * free) + (5 * fifth + 16 * cube + 3 * NORMAL) / (96 * free**2)
    quantile = _STUDENT[free - 1] if free <= len(_STUDENT) else series
    mean, reach = float(taken.mean()), quantile * float(taken.std(ddof=1)) / math.sqrt(len(taken))
    return mean - reach, mean + reach


def chance_within(rivals_us: Sequence[Samples], winner: int, band: float) -> float:
    """Chance that `rivals_us[winner]` is within `band` of the fastest of the rivals, by bootstrap.

    Args:
        rivals_us: samples of each rival. Where all are equally long, sample i of each is from turn i and
            turns are resampled; otherwise each rival is resampled alone.
        band: relative, 0.02 for 2 %.
    """
    rng = np.random.default_rng(_SEED)
    paired = len({len(samples) for samples in rivals_us}) == 1
    shared = rng.integers(len(rivals_us[0]), size=(RESAMPLES, len(rivals_us[0])))
    medians = np.array(
        [
            np.median(np.asarray(us)[shared if paired else rng.integers(len(us), size=(RESAMPLES, len(us)))], axis=1)
            for us in by_turn(rivals_us)
        ]
    )
    return float(np.mean(medians[winner] <= medians.min(axis=0) * (1 + band)))


def _resampled(samples: npt.NDArray[np.float64], rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Medians of as many samples drawn from these; the same whatever is drawn at once."""
    count = len(samples)
    rows = max(_DRAWN_AT_ONCE // count, 1)
    sizes = (min(rows, RESAMPLES - begin) for begin in range(0, RESAMPLES, rows))
    return np.concatenate([np.median(samples[rng.integers(count, size=(size, count))], axis=1) for size in sizes])


def _reach(one_us: Samples, other_us: Samples, scatter: float) -> float:
    """Half of the 95 % interval of a ratio of two means, as a share of it, where a sample's scatter is known."""
    return NORMAL * scatter * math.sqrt(1 / len(one_us) + 1 / len(other_us))


def _interval(values: npt.NDArray[np.float64]) -> tuple[float, float]:
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(values, (tail, 1 - tail))
    return float(low), float(high)
