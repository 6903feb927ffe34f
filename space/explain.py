"""Explanations: why a config is illegal for a problem, with numbers and the nearest legal change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np

from space.columns import BoolColumn, Columns
from space.config import Config
from space.devices import DeviceProfile
from space.family import Family
from space.nearest import MOST_CHANGES, Neighbourhood
from space.problem import Problem
from space.registry import family_named
from space.rules import Rule


@dataclass(frozen=True, slots=True)
class Broken:
    """One rule that a config breaks.

    Attributes:
        rule: its id.
        sentence: what must hold.
        numbers: the arithmetic, as in `245,760 B > 232,448 B on sm_90a`.
        source: where the limit is written down.
    """

    rule: str
    sentence: str
    numbers: str
    source: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything that is to say about one config and one problem.

    Attributes:
        broken: every legal rule that it breaks, in the table's order; empty when legal.
        not_worth: worth rules that it breaks; such a config is legal but not tried.
        nearest: the legal config that differs in the fewest knobs, and in those least; None when it is legal
            already, or when no `MOST_CHANGES` knobs make it so.
        change: the knobs that differ as text, `stages=4` or `tile_m=64,stages=3`; empty where `nearest` is None.
        derived: derived values by name.
    """

    config: Config
    problem: Problem
    arch: str
    broken: tuple[Broken, ...]
    not_worth: tuple[Broken, ...]
    nearest: Config | None
    change: str
    derived: dict[str, int]

    @property
    def legal(self) -> bool:
        """Whether no legal rule is broken."""
        return not self.broken


def explain(family: Family, problem: Problem, config: Config, device: DeviceProfile | None = None) -> Explanation:
    """What the rules say of one config; never raises for a well-formed one."""
    device = device or family.reference
    near = Neighbourhood(family, problem, config, device)
    columns = near.columns
    broken = [rule for rule, held in zip(family.legal, near.held, strict=True) if not held[0]]
    # What is illegal is not tried anyway: whether it would be worth it is nobody's question.
    not_worth = [] if broken else [rule for rule in family.rules if rule.kind == "worth" and not rule.mask(columns)[0]]
    change = near.nearest_legal(MOST_CHANGES) if broken else {}
    derived = {value.name: columns.first(value.name) for value in family.derived}
    return Explanation(
        config, problem, device.arch.name, _told(broken, columns), _told(not_worth, columns),
        config.changed(change) if change else None,
        ",".join(f"{knob}={value}" for knob, value in change.items()), derived,
    )  # fmt: skip


def legal_mask(family: Family, columns: Columns) -> BoolColumn:
    """Rows that break no legal rule."""
    mask = np.ones(len(columns), dtype=np.bool_)
    for rule in family.rules:
        if rule.kind == "legal":
            mask &= rule.mask(columns)
    return mask


def legal_among(
    problem: Problem, configs: Iterable[Config], device: DeviceProfile | None = None
) -> frozenset[Config]:
    """Those of the configs, of whatever families, that are legal for a problem: at once, as one by one is slow."""
    by_family: dict[str, list[Config]] = {}
    for config in configs:
        by_family.setdefault(config.family, []).append(config)
    found: list[Config] = []
    for name, own in by_family.items():
        family = family_named(name)
        found += compress(own, legal_mask(family, family.columns(problem, own, device)))
    return frozenset(found)


def is_legal(family: Family, problem: Problem, config: Config, device: DeviceProfile | None = None) -> bool:
    """Whether one config is legal for a problem."""
    return bool(legal_mask(family, family.columns(problem, [config], device))[0])


def nearest_config(
    family: Family, problem: Problem, config: Config, device: DeviceProfile | None = None, most: int = MOST_CHANGES
) -> Config | None:
    """The config itself where it is legal, else the nearest legal one within so many changes; None without one."""
    near = Neighbourhood(family, problem, config, device)
    if all(held[0] for held in near.held):
        return config
    change = near.nearest_legal(most)
    return config.changed(change) if change else None


def _told(rules: Sequence[Rule], columns: Columns) -> tuple[Broken, ...]:
    return tuple(Broken(rule.id, rule.sentence, rule.numbers(columns), rule.source) for rule in rules)
