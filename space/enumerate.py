"""Enumeration: the product of all knob domains, filtered by each rule as soon as its knobs are known."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from space.columns import Columns
from space.devices import DeviceProfile
from space.errors import FamilyError
from space.knobs import Knob
from space.plug import Family
from space.problem import Problem
from space.rules import Rule

#: Grid cells filtered at a time.
PIECE_ROWS: Final = 1 << 16
#: Rows of a space. Pruned ones have thousands; all legal configs of `sm90_wgmma`, but for their free knobs, are
#: 7 million for 4096x4096x4096, and up to 30 million where few tiles leave split-K room. A table and its copy take
#: 150 bytes a row.
MOST_ROWS: Final = 1 << 24


@dataclass(frozen=True)
class Space:
    """The configs of one family that remain for one problem.

    Attributes:
        columns: one row per config; unpruned, one row for all configs that differ only in free knobs.
        total: size of the product of all domains.
        removed: number of configs that each rule, by id, was the first to remove;
            `total - sum(removed.values()) == count`.
        each: configs per row: 1, or the product of the domains of the free knobs.
    """

    family: Family
    problem: Problem
    columns: Columns
    total: int
    removed: dict[str, int]
    each: int = 1

    @property
    def count(self) -> int:
        """Number of configs."""
        return len(self.columns) * self.each

    @property
    def removed_most(self) -> str:
        """Ids of up to three rules that removed most configs, as a list in a sentence."""
        return ", ".join(sorted(self.removed, key=lambda rule: -self.removed[rule])[:3])

    def __len__(self) -> int:
        return len(self.columns)


def enumerate_space(
    family: Family,
    problem: Problem,
    device: DeviceProfile | None = None,
    *,
    pruned: bool = True,
    without: Collection[str] = (),
) -> Space:
    """Every legal config of `family` for `problem`; with `pruned`, only those worth trying.

    A rule is applied at the first knob at which all knobs that it reads are known, so illegal regions are never
    expanded. Unpruned, free knobs (those that no legal rule reads) stay at their defaults: they only multiply the
    space.

    Args:
        without: ids of worth rules to switch off. Legal rules cannot be switched off.

    Raises:
        FamilyError: `without` names something that is not a worth rule of the family, or more than `MOST_ROWS` remain.
    """
    device = device or family.reference
    _check_switches((family,), without)
    pending = [rule for rule in family.rules if rule.kind == "legal" or (pruned and rule.id not in without)]
    held = () if pruned else family.free
    each = math.prod(len(knob.domain) for knob in held)
    removed: Counter[str] = Counter()
    known = {knob.name for knob in held}
    columns = family.empty_columns(problem, device, held)
    # Configs of the full product that one partial row represents.
    stands_for = total = math.prod(len(knob.domain) for knob in family.knobs)
    for knob in (knob for knob in family.knobs if knob not in held):
        known.add(knob.name)
        ready = [rule for rule in pending if family.knobs_read(rule) <= known]
        pending = [rule for rule in pending if rule not in ready]
        stands_for //= len(knob.domain)
        columns, lost = _expand(columns, family, knob, ready)
        for rule_id, count in lost.items():
            removed[rule_id] += count * stands_for
    return Space(family, problem, columns, total, dict(removed), each)


def enumerate_all(
    families: Sequence[Family], problem: Problem, device: DeviceProfile, *, pruned: bool = True,
    without: Collection[str] = (),
) -> list[Space]:  # fmt: skip
    """The space of each of several families.

    Args:
        without: ids of worth rules of any of the families.

    Raises:
        FamilyError: `without` names something that is not a worth rule of any of them, or a space is too large.
    """
    _check_switches(families, without)
    own = [[rule for rule in _worth(family) if rule in without] for family in families]
    return [enumerate_space(family, problem, device, pruned=pruned, without=rules)
            for family, rules in zip(families, own, strict=True)]  # fmt: skip


def _worth(family: Family) -> list[str]:
    return [rule.id for rule in family.worth]


def _check_switches(families: Sequence[Family], without: Collection[str]) -> None:
    switches = dict.fromkeys(rule for family in families for rule in _worth(family))
    for wrong in (rule for rule in without if rule not in switches):
        known = any(rule.id == wrong for family in families for rule in family.rules)
        unknown = f"is unknown to {' and '.join(family.name for family in families)}"
        why = "is a hard limit and cannot be switched off" if known else unknown
        raise FamilyError(f"rule {wrong!r} {why}: rules that can be switched off are {', '.join(switches) or 'none'}")


def _expand(columns: Columns, family: Family, knob: Knob, rules: list[Rule]) -> tuple[Columns, Counter[str]]:
    """Every row with every value of one more knob, filtered by `rules`; and the number of rows that each rule removed.

    It works piece by piece, so that intermediate columns stay in the processor's cache.
    """
    lost: Counter[str] = Counter()
    kept: list[Columns] = []
    # Before the domain is listed: that of a library's attribute has billions of values.
    if len(knob.domain) > MOST_ROWS:
        raise _too_many(family, columns.problem)
    domain, place, room = knob.column(), family.places[knob.name], MOST_ROWS
    rows = max(PIECE_ROWS // len(domain), 1)
    for begin in range(0, max(len(columns), 1), rows):
        grid = columns.part(begin, begin + rows).cross(knob.name, place, domain)
        left = np.ones(grid.shape, dtype=np.bool_)
        for rule in rules:
            before = int(np.count_nonzero(left))
            left &= rule.mask(grid)
            lost[rule.id] += before - int(np.count_nonzero(left))
        room -= int(np.count_nonzero(left))
        if room < 0:
            raise _too_many(family, columns.problem)
        kept.append(grid.cut(left))
    return Columns.joined(kept), +lost


def _too_many(family: Family, problem: Problem) -> FamilyError:
    return FamilyError(
        f"more than {MOST_ROWS:,} configs of {family.name} remain for {problem.title}, too many to list: switch off "
        "fewer worth rules, or count the legal configs unpruned"
    )
