"""Structures: which of ranked candidates differ in more than launch order, buffering and stores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from space.config import Config
from space.family import family_named
from space.knobs import KnobValue

T = TypeVar("T")


def best_of_structures(ahead: Sequence[T], config_of: Callable[[T], Config], fastest: int, most: int) -> list[T]:
    """The fastest, then the best of each other kernel structure.

    Args:
        ahead: candidates, fastest first.
        fastest: number of those that are taken whatever their structure.
        most: number after which no further structure is added.
    """
    chosen = list(ahead[:fastest])
    seen = {structure_of(config_of(one)) for one in chosen}
    for one in ahead[fastest:]:
        structure = structure_of(config_of(one))
        if structure not in seen and len(chosen) < most:
            seen.add(structure)
            chosen.append(one)
    return chosen


def by_structure(ahead: Iterable[T], config_of: Callable[[T], Config]) -> dict[tuple[KnobValue, ...], list[T]]:
    """Candidates by their kernel structure, in their order."""
    groups: dict[tuple[KnobValue, ...], list[T]] = {}
    for one in ahead:
        groups.setdefault(structure_of(config_of(one)), []).append(one)
    return groups


def structure_of(config: Config) -> tuple[KnobValue, ...]:
    """What all configs of one kernel structure share; no two families share one."""
    return family_named(config.family).structure_of(config)
