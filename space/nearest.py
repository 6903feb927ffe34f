"""The nearest legal config: the fewest knobs to change, and of those changes the smallest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from space.arch import Arch
from space.columns import Columns
from space.config import Config
from space.family import Family
from space.knobs import Knob, KnobValue
from space.problem import Problem
from space.rules import Rule

#: More knobs at once are another config, not a change of this one.
MOST_CHANGES: Final = 3
#: So few rows are filtered faster by every rule than cut after each.
_FEW_ROWS: Final = 512

_Rows: TypeAlias = npt.NDArray[np.intp]


def nearest_legal(
    family: Family, problem: Problem, config: Config, arch: Arch | None, broken: Sequence[Rule], most: int
) -> dict[str, KnobValue]:
    """The change that makes a config legal: the knobs to change and their values; empty where nothing helps.

    The fewest knobs; of several such changes the one whose knobs move the fewest places in their domains, all
    places together; of those the first in the order of knobs and values. The search is exhaustive.

    Args:
        broken: the legal rules that the config breaks.
        most: so many knobs may change.
    """
    # Free knobs change nothing about legality.
    free = {knob.name for knob in family.free}
    bound = [knob for knob in family.knobs if knob.name not in free]
    touching = [[knob.name in read for knob in bound] for read in map(family.knobs_read, broken)]
    # What is broken now cuts most rows.
    first = {rule.id for rule in broken}
    rules = [*broken, *(rule for rule in family.rules if rule.kind == "legal" and rule.id not in first)]
    for changes in range(1, min(most, len(bound)) + 1):
        ways = _ways(tuple(len(knob.domain) - 1 for knob in bound), changes)
        moves = _Moves.of(bound, config, ways, np.array(touching))
        left = _legal_rows(moves.columns(family, bound, problem, config, arch), rules)
        if len(left):
            return moves.change(bound, int(left[np.argmin(moves.distances[left])]))
    return {}


@dataclass(frozen=True, slots=True)
class _Ways:
    """Every way to change so many knobs, one row a way.

    Attributes:
        chosen: each set of knobs, by their places.
        row_chosen: of each row, which set it changes.
        steps: of each row, to which of its other values each knob of the set goes.
    """

    chosen: _Rows
    row_chosen: _Rows
    steps: _Rows


@cache
def _ways(others: tuple[int, ...], changes: int) -> _Ways:
    """For knobs that have so many other values each."""
    chosen = np.array(list(combinations(range(len(others)), changes)))
    steps = [np.indices([others[place] for place in places]).reshape(changes, -1).T for places in chosen]
    return _Ways(chosen, np.repeat(np.arange(len(chosen)), [len(rows) for rows in steps]), np.concatenate(steps))


@dataclass(frozen=True, slots=True)
class _Moves:
    """The ways that may mend what is broken, from one config.

    Attributes:
        knobs: of each row, the places of the knobs that it changes.
        places: of each row, where in their domains these go.
        distances: of each row, how far that is.
    """

    knobs: _Rows
    places: _Rows
    distances: _Rows

    @staticmethod
    def of(bound: Sequence[Knob], config: Config, ways: _Ways, touching: npt.NDArray[np.bool_]) -> _Moves:
        """Of those sets of knobs that touch every broken rule (rules x knobs): another set leaves one broken."""
        mends: npt.NDArray[np.bool_] = np.all(np.any(touching[:, ways.chosen], axis=2), axis=0)
        rows = np.flatnonzero(mends[ways.row_chosen])
        knobs, steps = ways.chosen[ways.row_chosen[rows]], ways.steps[rows]
        here = np.array([knob.domain.index(config[knob.name]) for knob in bound])[knobs]
        places = steps + (steps >= here)
        return _Moves(knobs, places, np.abs(places - here).sum(axis=1))

    def columns(
        self, family: Family, bound: Sequence[Knob], problem: Problem, config: Config, arch: Arch | None
    ) -> Columns:
        """Every row as a config."""
        codes = np.zeros((len(bound), max(len(knob.domain) for knob in bound)), dtype=family.code)
        for place, knob in enumerate(bound):
            codes[place, : len(knob.domain)] = knob.column()
        here = np.array([knob.encode(config[knob.name]) for knob in family.knobs], dtype=family.code)
        table = here.repeat(len(self.knobs)).reshape(len(here), -1).T
        columns = np.array([family.places[knob.name] for knob in bound])
        table[np.arange(len(table))[:, None], columns[self.knobs]] = codes[self.knobs, self.places]
        return family.rows_of(problem, table, arch)

    def change(self, bound: Sequence[Knob], row: int) -> dict[str, KnobValue]:
        """What a row changes."""
        pairs = zip(self.knobs[row], self.places[row], strict=True)
        return {bound[knob].name: bound[knob].domain[place] for knob, place in pairs}


def _legal_rows(columns: Columns, rules: Sequence[Rule]) -> _Rows:
    """The rows that obey every rule."""
    rows = np.arange(len(columns))
    held = np.ones(len(columns), dtype=np.bool_)
    for rule in rules:
        held &= rule.mask(columns)
        if not held.any():
            break
        if len(rows) > _FEW_ROWS and np.count_nonzero(held) * 2 < len(rows):
            columns, rows = columns.take(held), rows[held]
            held = np.ones(len(rows), dtype=np.bool_)
    return rows[held]
