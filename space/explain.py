"""Explanations: why a config is illegal for a problem, with numbers and the nearest legal change."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from space.arch import Arch, arch_named
from space.columns import BoolColumn, Columns
from space.config import Config
from space.family import Family
from space.problem import Problem
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
        nearest: the legal config that differs in one knob, and in that one least; None when it is legal
            already, or when no single change helps.
        change: the same as text, `stages=4`; empty where `nearest` is None.
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


def explain(family: Family, problem: Problem, config: Config, arch: Arch | None = None) -> Explanation:
    """What the rules say of one config; never raises for a well-formed one."""
    arch = arch or arch_named(family.arch)
    columns = family.columns(problem, [config], arch)
    broken = tuple(_broken(rule, columns) for rule in family.rules if not rule.mask(columns)[0])
    kinds = {rule.id: rule.kind for rule in family.rules}
    illegal = tuple(entry for entry in broken if kinds[entry.rule] == "legal")
    nearest, change = nearest_legal(family, problem, config, arch) if illegal else (None, "")
    derived = {value.name: int(columns[value.name][0]) for value in family.derived}
    not_worth = tuple(entry for entry in broken if kinds[entry.rule] == "worth")
    return Explanation(config, problem, arch.name, illegal, not_worth, nearest, change, derived)


def legal_mask(family: Family, columns: Columns) -> BoolColumn:
    """Rows that break no legal rule."""
    mask = np.ones(len(columns), dtype=np.bool_)
    for rule in family.rules:
        if rule.kind == "legal":
            mask &= rule.mask(columns)
    return mask


def is_legal(family: Family, problem: Problem, config: Config, arch: Arch | None = None) -> bool:
    """Whether one config is legal for a problem."""
    return bool(legal_mask(family, family.columns(problem, [config], arch))[0])


def nearest_legal(
    family: Family, problem: Problem, config: Config, arch: Arch | None = None
) -> tuple[Config | None, str]:
    """The legal config one knob away whose knob moves the fewest places, and the change as text."""
    moves: list[tuple[int, Config, str]] = []
    for knob in family.knobs:
        here = knob.domain.index(config[knob.name])
        for place, value in enumerate(knob.domain):
            if place != here:
                other = family.config(config.knobs | {knob.name: value})
                moves.append((abs(place - here), other, f"{knob.name}={value}"))
    mask = legal_mask(family, family.columns(problem, [other for _, other, _ in moves], arch))
    legal = [move for move, fits in zip(moves, mask, strict=True) if fits]
    if not legal:
        return None, ""
    _, nearest, change = min(legal, key=lambda move: move[0])
    return nearest, change


def _broken(rule: Rule, columns: Columns) -> Broken:
    return Broken(rule.id, rule.sentence, rule.numbers(columns), rule.source)
