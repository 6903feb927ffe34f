"""Explains why a config is illegal for a problem, with numbers and the nearest legal change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np

from space.columns import BoolColumn, Columns
from space.config import Config
from space.devices import DeviceProfile
from space.family import family_named
from space.nearest import MAX_CHANGES, Neighbourhood
from space.plug import Family
from space.problem import Problem
from space.rules import Rule


@dataclass(frozen=True, slots=True)
class Broken:
    """One rule that a config breaks.

    Attributes:
        rule: id of the rule.
        sentence: the condition in words.
        numbers: the arithmetic, as in `245,760 B > 232,448 B on sm_90a`.
        source: where the limit is documented.
    """

    rule: str
    sentence: str
    numbers: str
    source: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The rules' verdict on one config of one problem.

    Attributes:
        broken: every legal rule that the config breaks; empty if it is legal.
        not_worth: every worth rule that a legal config breaks; tuning does not try such a config.
        nearest: the legal config that differs in the fewest knobs, and by the smallest steps; None if the config is
            legal, or if no change of `MAX_CHANGES` knobs makes it so.
        change: the knobs that differ, as text: `stages=4` or `tile_m=64,stages=3`; empty if `nearest` is None.
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
        """Whether the config breaks no legal rule."""
        return not self.broken

    @property
    def judged(self) -> bool:
        """Whether its family has legal rules; where it has none, like `cublaslt`, its library alone knows."""
        return bool(family_named(self.config.family).legal)


def explain(family: Family, problem: Problem, config: Config, device: DeviceProfile | None = None) -> Explanation:
    """Explains one config. An illegal config is explained, not refused."""
    device = device or family.reference
    if not family.legal:
        # Nothing can be broken, and the domains may be too long to list neighbours.
        columns = family.columns(problem, [config], device)
        derived = {value.name: columns.first(value.name) for value in family.derived}
        return Explanation(config, problem, device.arch.name, (), (), None, "", derived)
    near = Neighbourhood(family, problem, config, device)
    columns = near.columns
    broken = [rule for rule, held in zip(family.legal, near.held, strict=True) if not held[0]]
    # Worth rules say nothing about an illegal config.
    not_worth = [] if broken else [rule for rule in family.worth if not rule.mask(columns)[0]]
    change = near.nearest_legal(MAX_CHANGES) if broken else {}
    derived = {value.name: columns.first(value.name) for value in family.derived}
    return Explanation(
        config, problem, device.arch.name, _broken(broken, columns), _broken(not_worth, columns),
        config.changed(change) if change else None,
        ",".join(f"{knob}={value}" for knob, value in change.items()), derived,
    )  # fmt: skip


def config_asked(
    family: Family, problem: Problem, knobs: Mapping[str, object], device: DeviceProfile | None = None
) -> Config:
    """The config to explain to whoever names these knobs; missing ones take their defaults.

    Without any knob it is the legal config nearest to the defaults: these are of 16-bit operands, and who asks about
    8-bit floats has not chosen what would be illegal.

    Raises:
        ConfigError: an unknown knob or a value outside its domain.
    """
    config = family.config(knobs)
    return config if knobs else explain(family, problem, config, device).nearest or config


def legal_mask(family: Family, columns: Columns) -> BoolColumn:
    """True for rows that break no legal rule."""
    return _mask(family.legal, columns)


def worth_mask(family: Family, columns: Columns) -> BoolColumn:
    """True for rows that break no worth rule, whether they are legal or not."""
    return _mask(family.worth, columns)


def _mask(rules: Iterable[Rule], columns: Columns) -> BoolColumn:
    mask = np.ones(len(columns), dtype=np.bool_)
    for rule in rules:
        mask &= rule.mask(columns)
    return mask


def legal_among(
    problem: Problem, configs: Iterable[Config], device: DeviceProfile | None = None
) -> frozenset[Config]:
    """The configs that are legal for a problem, of any families; checked together, which is faster than one by one."""
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


def first_broken(family: Family, problem: Problem, config: Config, device: DeviceProfile | None = None) -> str:
    """The first legal rule that a config breaks, with its numbers; empty if it is legal.

    Far faster than `explain`, which looks for a legal config nearby.
    """
    columns = family.columns(problem, [config], device)
    broken = next((rule for rule in family.legal if not rule.mask(columns)[0]), None)
    return f"{broken.id} ({broken.numbers(columns)})" if broken else ""


def _broken(rules: Sequence[Rule], columns: Columns) -> tuple[Broken, ...]:
    return tuple(Broken(rule.id, rule.sentence, rule.numbers(columns), rule.source) for rule in rules)
