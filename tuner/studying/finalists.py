"""Finalists: which of a search's correct candidates are measured in full.

Where power decides, hundreds of configs differ in launch order, buffering and stores alone, and by less than any
measurement of seconds can tell. There each structure sends one config, the first expected of those that tie, so that
two tunes of a problem choose among the same ones.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Final

from space.config import Config
from space.structures import best_of_structures, by_structure
from tuner.studying.records import FINALISTS, MOST_FINALISTS, MOST_WITH_STRUCTURES, Trial

#: A candidate that is behind the best by this many times the usual scatter may still be the fastest.
DOUBTFUL: Final = 1.0
#: How far behind the fastest, as a share of its time, the best of a structure still goes into the finals.
NEAR_STRUCTURE: Final = 0.05
#: Configs of one structure tie where they are behind its fastest by at most this share of its time. Of 123 structures
#: that led a screening on H100s, 116 held their first expected config that near, 104 within half of it.
ALIKE: Final = 0.02


def fastest(ahead: Sequence[Trial]) -> list[Trial]:
    """The fastest, then the best of each other structure that is near.

    Args:
        ahead: correct trials, fastest first.
    """
    kept = finalist_count([(entry.median_us, entry.noise) for entry in ahead], FINALISTS, MOST_FINALISTS)
    reached = [*ahead[:kept], *near(ahead)[kept:]]
    return best_of_structures(reached, lambda entry: entry.config, kept, MOST_WITH_STRUCTURES)


def one_of_each_structure(ahead: Sequence[Trial], place: Callable[[Config], int]) -> list[Trial]:
    """One trial of each structure that is near, of others only while there are few; fastest first.

    Args:
        ahead: correct trials, fastest first.
        place: of a config in the order in which the search expects them, the fastest first.
    """
    count = len(by_structure(near(ahead), lambda entry: entry.config))
    groups = [*by_structure(ahead, lambda entry: entry.config).values()]
    leading = groups[: min(max(count, FINALISTS), MOST_WITH_STRUCTURES)]
    chosen = [min(_tied(group), key=lambda entry: place(entry.config)) for group in leading]
    return sorted(chosen, key=lambda entry: entry.median_us)


def near(ahead: Sequence[Trial]) -> list[Trial]:
    """Those of correct trials, fastest first, that are near enough for the finals."""
    return [entry for entry in ahead if entry.median_us <= ahead[0].median_us * (1 + NEAR_STRUCTURE)]


def finalist_count(ahead: Sequence[tuple[float, float]], least: int, most: int) -> int:
    """How many of the candidates ahead go to the finals.

    Args:
        ahead: (median time, scatter as a share of it) of each correct candidate, fastest first.
        least, most: bounds of the answer, where there are that many candidates.
    """
    if not ahead:
        return 0
    scatter = statistics.median(noise for _, noise in ahead[:most])
    reach = ahead[0][0] * (1 + DOUBTFUL * scatter)
    close = sum(time_us <= reach for time_us, _ in ahead)
    return min(max(close, least), most, len(ahead))


def _tied(group: Sequence[Trial]) -> list[Trial]:
    """Trials of one structure that tie with its fastest, which comes first."""
    return [entry for entry in group if entry.median_us <= group[0].median_us * (1 + ALIKE)]
