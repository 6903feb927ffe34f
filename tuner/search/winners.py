"""Winners of similar problems: what a search tries early, and what an untuned problem may borrow."""

from __future__ import annotations

import math
from typing import Final

from space.config import Config
from space.family import Family
from space.problem import Problem
from tuner.model.kinship import octaves
from tuner.records import Best
from tuner.store.store import Store

#: Winners that are looked at: the nearest ones.
MOST: Final = 8


def neighbours_of(store: Store, problem: Problem, device: str, reach: float = math.inf) -> list[Best]:
    """Bests of problems that differ from `problem` in their extents alone, nearest first, within `reach` octaves."""
    found = [best for best in store.neighbours(problem, device) if octaves(problem, best.problem) <= reach]
    return sorted(found, key=lambda best: (octaves(problem, best.problem), best.problem.key))[:MOST]


def winners_near(store: Store, problem: Problem, device: str, family: Family) -> tuple[Config, ...]:
    """Configs of `family` that won or came second on similar problems, most similar first."""
    found: list[Config] = []
    for best in neighbours_of(store, problem, device):
        found += [config for config in (best.config, best.runner_up) if config and config.family == family.name]
    return tuple(dict.fromkeys(found))
