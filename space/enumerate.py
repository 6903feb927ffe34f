"""Enumeration: the product of all knob domains, cut by each rule as soon as its knobs are known."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from space.arch import Arch, arch_named
from space.columns import Columns
from space.family import Family
from space.problem import Problem


@dataclass(frozen=True)
class Space:
    """The configs of one family that are left for one problem.

    Attributes:
        columns: one row a config.
        total: size of the plain product of the domains.
        removed: by rule id, how many configs of the product that rule was the first to remove.
            `total - sum(removed.values()) == len(columns)`.
    """

    family: Family
    problem: Problem
    columns: Columns
    total: int
    removed: dict[str, int]

    def __len__(self) -> int:
        return len(self.columns)


def enumerate_space(
    family: Family,
    problem: Problem,
    arch: Arch | None = None,
    *,
    pruned: bool = True,
    without: Collection[str] = (),
) -> Space:
    """Every legal config of `family` for `problem`; with `pruned`, only those worth trying.

    Args:
        without: ids of worth rules to switch off. Legal rules can't be switched off.

    The cost is that of the surviving partial products: a rule is applied at the first knob at which all
    knobs that it reads are known, so illegal regions are never expanded.
    """
    arch = arch or arch_named(family.arch)
    pending = [rule for rule in family.rules if rule.kind == "legal" or (pruned and rule.id not in without)]
    sizes = [len(knob.domain) for knob in family.knobs]
    removed: Counter[str] = Counter()
    known: set[str] = set()
    columns = family.empty_columns(problem, arch)
    for place, knob in enumerate(family.knobs, start=1):
        columns = columns.cross(knob.name, knob.column())
        known.add(knob.name)
        ready = [rule for rule in pending if family.knobs_read(rule) <= known]
        pending = [rule for rule in pending if rule not in ready]
        for rule in ready:
            mask = rule.mask(columns)
            lost = len(columns) - int(mask.sum())
            if lost:
                removed[rule.id] += lost * math.prod(sizes[place:])
                columns = columns.take(mask)
    return Space(family, problem, columns, math.prod(sizes), dict(removed))
