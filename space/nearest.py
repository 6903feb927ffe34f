"""The nearest legal config: the fewest knobs to change, and of those changes the smallest."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from space.arch import Arch
from space.columns import BoolColumn, Columns
from space.config import Config
from space.family import Family
from space.knobs import KnobValue
from space.problem import Problem
from space.rules import Rule

#: More knobs at once are another config, not a change of this one.
MOST_CHANGES: Final = 3
#: So few rows, or while so large a share of them is left, are looked at faster by every rule than cut after each.
_FEW_ROWS, _STILL_MOST = 512, 0.8

_Rows: TypeAlias = npt.NDArray[np.intp]


def neighbours(family: Family, config: Config) -> _Rows:
    """The config, and behind it each that differs in one knob: places of values in their domains, one a knob."""
    here = np.array([knob.domain.index(value) for knob, (_, value) in zip(family.knobs, config.values, strict=True)])
    knob, place = _places(family)
    other = place != here[knob]
    rows = np.repeat(here[None], 1 + np.count_nonzero(other), axis=0)
    rows[np.arange(1, len(rows)), knob[other]] = place[other]
    return rows


def columns_of(family: Family, problem: Problem, arch: Arch | None, rows: _Rows) -> Columns:
    """The configs whose values stand at these places of their domains."""
    knobs, values = family.codes.shape
    return family.rows_of(problem, family.codes.ravel().take(rows + np.arange(0, knobs * values, values)), arch)


def nearest_legal(
    family: Family, problem: Problem, arch: Arch | None, near: _Rows, held: Sequence[BoolColumn], most: int
) -> dict[str, KnobValue]:
    """The change that makes a config legal: the knobs to change and their values; empty where nothing helps.

    The fewest knobs; of several such changes the one whose knobs move the fewest places in their domains, all
    places together; of those the first in the order of knobs and values. The search misses none of them: what breaks
    a rule becomes legal only if one of the knobs that the rule reads changes, so each of these is tried in turn.

    Args:
        near: the config and its neighbours.
        held: for each legal rule, which of `near` hold it.
        most: so many knobs may change.
    """
    here, legal = near[0], np.logical_and.reduce(held)
    if legal.any():
        return _smallest(family, here, near[legal])
    breaks = np.argmin(np.array(held), axis=0)
    mends = (near != here)[:, _read_by(family, int(breaks[0]))].any(axis=1)
    rows, breaks = near[mends], breaks[mends]
    for _ in range(1, most):
        rows = _changed_once_more(family, here, rows, breaks)
        breaks = _first_broken(columns_of(family, problem, arch, rows), family.legal)
        if len(found := rows[breaks == len(family.legal)]):
            return _smallest(family, here, found)
    return {}


def _changed_once_more(family: Family, here: _Rows, rows: _Rows, breaks: _Rows) -> _Rows:
    """Each row with each other value of each knob that stands as it did and that the rule which the row breaks reads.

    Rows are places of values in their domains, one a knob.
    """
    knob, place = _places(family)
    other = place != here[knob]
    found = [rows[:0]]
    for rule in set(breaks.tolist()):
        mends = np.flatnonzero(_read_by(family, rule)[knob] & other)
        breaking = rows[breaks == rule]
        row, mend = np.nonzero((breaking == here)[:, knob[mends]])
        changed = breaking.take(row, axis=0)
        changed[np.arange(len(row)), knob[mends].take(mend)] = place[mends].take(mend)
        found.append(changed)
    return np.concatenate(found)


@cache
def _places(family: Family) -> tuple[_Rows, _Rows]:
    """Every value of every knob: the knob's number, and the value's place in its domain."""
    sizes = np.array([len(knob.domain) for knob in family.knobs])
    knob, place = np.nonzero(np.arange(sizes.max()) < sizes[:, None])
    return knob, place


def _read_by(family: Family, rule: int) -> BoolColumn:
    """Which knobs the legal rule at this place of the table reads."""
    read = family.knobs_read(family.legal[rule])
    return np.array([knob.name in read for knob in family.knobs])


def _first_broken(columns: Columns, rules: Sequence[Rule]) -> _Rows:
    """For each row the first rule that it breaks, by its place; for legal ones the number of rules."""
    breaks = np.full(len(columns), len(rules))
    rows = np.arange(len(columns))
    legal = np.ones(len(columns), dtype=np.bool_)
    for place, rule in enumerate(rules):
        held = rule.mask(columns)
        if held.all():
            continue
        breaks[rows[legal & ~held]] = place
        legal &= held
        left = np.count_nonzero(legal)
        if not left:
            break
        if len(rows) > _FEW_ROWS and left < _STILL_MOST * len(rows):
            columns, rows = columns.take(legal), rows[legal]
            legal = np.ones(left, dtype=np.bool_)
    return breaks


def _smallest(family: Family, here: _Rows, rows: _Rows) -> dict[str, KnobValue]:
    """Of some rows, what the one changes that moves fewest places, and of several the first."""
    distances = np.abs(rows - here).sum(axis=1)
    nearest = rows[distances == distances.min()].tolist()
    changes = [[(knob, place) for knob, place in enumerate(row) if place != here[knob]] for row in nearest]
    change = min(changes, key=lambda change: tuple(zip(*change, strict=True)))
    return {family.knobs[knob].name: family.knobs[knob].domain[place] for knob, place in change}
