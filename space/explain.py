"""Explanations: why a config is illegal for a problem, with numbers and the nearest legal change."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from space.arch import Arch, arch_named
from space.columns import BoolColumn, Columns
from space.config import Config
from space.family import Family
from space.problem import Problem


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
    illegal = _broken_of(family, "legal", columns)
    # What is illegal is not tried anyway: whether it would be worth it is nobody's question.
    not_worth = () if illegal else _broken_of(family, "worth", columns)
    nearest, change = nearest_legal(family, problem, config, arch) if illegal else (None, "")
    derived = {value.name: int(columns[value.name][0]) for value in family.derived}
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
    domains = [knob.column() for knob in family.knobs]
    here = [knob.domain.index(config[knob.name]) for knob in family.knobs]
    lengths = np.array([len(domain) for domain in domains])
    # One row a value of a knob, all other knobs as they are; the config itself is among them, once a knob.
    moved = np.repeat(np.arange(len(domains)), lengths)
    places = np.concatenate([np.arange(length) for length in lengths])
    distances = np.abs(places - np.repeat(here, lengths))
    columns = {
        knob.name: np.where(moved == at, domains[at][np.minimum(places, lengths[at] - 1)], domains[at][here[at]])
        for at, knob in enumerate(family.knobs)
    }
    legal = legal_mask(family, family.columns_of(problem, columns, arch)) & (distances > 0)
    if not legal.any():
        return None, ""
    row = int(np.argmin(np.where(legal, distances, np.iinfo(np.int64).max)))
    knob = family.knobs[int(moved[row])]
    value = knob.domain[int(places[row])]
    return family.config(config.knobs | {knob.name: value}), f"{knob.name}={value}"


def _broken_of(family: Family, kind: str, columns: Columns) -> tuple[Broken, ...]:
    rules = (rule for rule in family.rules if rule.kind == kind and not rule.mask(columns)[0])
    return tuple(Broken(rule.id, rule.sentence, rule.numbers(columns), rule.source) for rule in rules)
