"""Winners of similar problems: what a search tries early."""

from __future__ import annotations

from itertools import islice
from typing import Final

from space.config import Config
from space.family import family_named
from space.problem import Problem
from tuner.store.store import Store

#: Problems that are looked at: the nearest ones.
MOST: Final = 8


def winners_near(store: Store, problem: Problem, device: str) -> tuple[Config, ...]:
    """Own configs that won or came second on similar problems, most similar first."""
    found: list[Config] = []
    for best in islice(store.neighbours(problem, device), MOST):
        found += [config for config in (best.config, best.runner_up) if config and family_named(config.family).own]
    return tuple(dict.fromkeys(found))
