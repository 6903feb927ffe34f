"""The nearest legal config: the fewest knobs to change, and of those changes the smallest.

If several knobs change, a rule that reads none of them keeps its verdict on the config, and a rule that reads one of
them keeps its verdict on that change alone. So every single change is checked once, all together; changes of several
knobs are checked only against rules that read at least two of these knobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from space.columns import Columns
from space.config import Config
from space.devices import DeviceProfile
from space.errors import FamilyError
from space.knobs import KnobValue
from space.plug import Family
from space.problem import Problem

#: Knobs that a change may touch; with more, it would be another config.
MAX_CHANGES: Final = 3
#: Smallest changes that are checked first: most searches end among them.
_NEAREST: Final = 1024
#: If the first knobs have more changes than this, they are filtered by this many of the hardest rules before further
#: knobs change.
_MANY, _MANY_RULES = 640, 2
#: Fewer rows than this take no less time.
_FEW_ROWS: Final = 64
#: Most legal rules of a family: one bit each. The next bit stands for "no change".
_MAX_RULES: Final = 62

_Numbers: TypeAlias = npt.NDArray[np.intp]
#: Values of knobs, as flat positions in `Family.codes`.
_Values: TypeAlias = npt.NDArray[np.intp]
#: Sets of legal rules: one bit per rule, in the order of `Family.legal`.
_Bits: TypeAlias = npt.NDArray[np.int64]


class Neighbourhood:
    """A config and its neighbours: every change of one knob that a legal rule reads.

    Checking all of them takes hardly longer than checking one.

    Attributes:
        columns: the config, then its neighbours.
        held: `legal rules x rows`, whether each of `columns` meets each rule.
    """

    def __init__(self, family: Family, problem: Problem, config: Config, device: DeviceProfile | None = None) -> None:
        self._family, self._problem, self._device = family, problem, device
        values = zip(family.knobs, config.values, strict=True)
        self._places = np.array([knob.domain.index(value) for knob, (_, value) in values])
        self._own = self._places + np.arange(len(family.knobs)) * family.codes.shape[1]
        # The first row keeps the config's own value. Some later rows do too, which does no harm.
        self._values = np.concatenate((self._own[:1], _bound_values(family)))
        self.columns = self._changed(self._values[None])
        self.held = np.empty((len(family.legal), len(self._values)), dtype=np.bool_)
        for held, rule in zip(self.held, family.legal, strict=True):
            held[:] = rule.holds(self.columns)

    def nearest_legal(self, most: int) -> dict[str, KnobValue]:
        """The change that makes an illegal config legal, as knobs and values; empty if there is none.

        It changes the fewest knobs, up to `most`; among those, it moves the fewest places in the knobs' domains; among
        those, it comes first in the order of knobs and values. A change is skipped only if it is known to break a rule.
        """
        distance = np.abs(np.arange(self._alone.shape[1]) - self._places[:, None]).astype(np.int16)
        for count in range(2 if self._breaks.all() else 1, most + 1):
            changes = self._changes(count)
            # A stable sort: equal distances keep the order of knobs and values.
            order = distance.take(changes.values).sum(axis=0, dtype=np.int16).argsort(kind="stable")
            for part in filter(len, (order[:_NEAREST], order[_NEAREST:])):
                if found := self._first_legal(changes.take(part)):
                    return found
        return {}

    @cached_property
    def _breaks(self) -> _Bits:
        """The rules that each row breaks."""
        return (1 << np.arange(len(self.held))) @ ~self.held

    @cached_property
    def _alone(self) -> _Bits:
        """The rules that each value breaks as the only change, `knobs x values`; all bits for the config's own."""
        alone: _Bits = np.full(self._family.codes.shape, -1)
        alone.ravel()[self._values] = self._breaks
        alone.ravel()[self._own] = -1
        return alone

    @cached_property
    def _hardest(self) -> list[int]:
        """Rules by the number of rows that meet them, fewest first: they remove most of the other changes too."""
        hardest: list[int] = self.held.sum(axis=1).argsort(kind="stable").tolist()
        return hardest

    def _changes(self, count: int) -> _Changes:
        """Changes of `count` knobs, in order, without those that are known to break a rule."""
        sets, width = _knob_sets(self._family, count), self._alone.shape[1]
        always = np.bitwise_and.reduce(self._alone, axis=1)
        still = self._breaks[0] & ~sets.read | np.bitwise_or.reduce(always.take(sets.knobs) & sets.alone, axis=0)
        hopeful = (still == 0).nonzero()[0]
        row, values = np.arange(len(hopeful)), np.empty((0, len(hopeful)), dtype=np.intp)
        for at in range(count):
            knob = sets.knobs[at].take(hopeful)
            mends = self._alone.take(knob, axis=0) & sets.alone[at].take(hopeful)[:, None] == 0
            each = mends.take(row, axis=0).ravel().nonzero()[0]
            before = each // width
            row = row.take(before)
            value = each + (knob.take(row) - before) * width
            values = np.array([*(other.take(before) for other in values), value])
            if at + 1 < count and len(row) > _MANY:
                left = self._left(_Changes(values, sets.shared[at].take(hopeful.take(row))))
                row, values = row.take(left), values.take(left, axis=1)
        return _Changes(values, sets.shared[-1].take(hopeful.take(row)))

    def _left(self, changes: _Changes) -> _Numbers:
        """The changes that break none of the hardest rules that they are checked against."""
        left = np.ones(len(changes.shared), dtype=np.bool_)
        for rule in self._hardest[:_MANY_RULES]:
            asked = (changes.shared >> rule & left).nonzero()[0]
            left[asked] = self._family.legal[rule].holds(self._changed(changes.values.take(asked, axis=1)))
        return left.nonzero()[0]

    def _first_legal(self, changes: _Changes) -> dict[str, KnobValue]:
        """The first change that breaks no rule; empty if all do."""
        columns = self._changed(changes.values)
        legal = np.ones(len(changes.shared), dtype=np.bool_)
        asked = int(np.bitwise_or.reduce(changes.shared))
        for rule in self._hardest:
            if not asked >> rule & 1:
                continue
            legal &= self._family.legal[rule].holds(columns)
            left = legal.nonzero()[0]
            if not len(left):
                return {}
            asked = int(np.bitwise_or.reduce(changes.shared.take(left)))
            if len(legal) > max(_FEW_ROWS, 2 * len(left)):
                changes, legal = changes.take(left), legal.take(left)
                columns = self._changed(changes.values)
        return self._named(changes.values[:, legal.argmax()])

    def _changed(self, values: _Values) -> Columns:
        """The config with these values of some knobs, `knobs x rows`; one row per change."""
        codes, rows = self._family.codes, values.shape[1]
        table = np.repeat(codes.take(self._own).astype(np.int64), rows)
        for each in values:
            table[each // codes.shape[1] * rows + np.arange(rows)] = codes.take(each)
        return self._family.rows_of(self._problem, table.reshape(len(codes), rows).T, self._device)

    def _named(self, values: _Values) -> dict[str, KnobValue]:
        knobs, width = self._family.knobs, self._family.codes.shape[1]
        places = (divmod(value, width) for value in values.tolist())
        return {knobs[knob].name: knobs[knob].domain[place] for knob, place in places}


@dataclass(frozen=True, slots=True, eq=False)
class _Changes:
    """Changes of a config, each of the same number of knobs.

    Attributes:
        values: the new values, `knobs x changes`.
        shared: the rules that each change is checked against: those that read at least two of its knobs.
    """

    values: _Values
    shared: _Bits

    def take(self, rows: _Numbers) -> _Changes:
        return _Changes(self.values.take(rows, axis=1), self.shared.take(rows))


@dataclass(frozen=True, slots=True, eq=False)
class _KnobSets:
    """Every set of a given number of knobs that legal rules read, in order.

    Attributes:
        knobs: `knobs x sets`.
        read: the rules that read any knob of the set.
        alone: `knobs x sets`, the rules that read this knob and no other of the set, and the bit of "no change".
        shared: `knobs x sets`, the rules that read at least two knobs up to this one, and none after it.
    """

    knobs: _Numbers
    read: _Bits
    alone: _Bits
    shared: _Bits


@cache
def _knob_sets(family: Family, count: int) -> _KnobSets:
    if len(family.legal) > _MAX_RULES:
        raise FamilyError(
            f"{family.name} has {len(family.legal)} legal rules, more than the {_MAX_RULES} that a search for the "
            "nearest legal config tells apart: join some"
        )
    reads = np.array([
        sum(1 << at for at, rule in enumerate(family.legal) if knob.name in family.knobs_read(rule))
        for knob in family.knobs
    ])  # fmt: skip
    knobs = np.array(list(combinations(np.flatnonzero(reads), count)), dtype=np.intp).reshape(-1, count).T.copy()
    own = reads[knobs]
    read = np.bitwise_or.accumulate(own, axis=0)
    shared = np.bitwise_or.accumulate(np.vstack((np.zeros_like(own[:1]), read[:-1] & own[1:])), axis=0)
    behind = np.vstack((np.bitwise_or.accumulate(own[:0:-1], axis=0)[::-1], np.zeros_like(own[:1])))
    return _KnobSets(knobs, read[-1], own & ~shared[-1] | 1 << _MAX_RULES, shared & ~behind)


@cache
def _bound_values(family: Family) -> _Values:
    """Every value of every knob that a legal rule reads."""
    sizes = np.array([0 if knob in family.free else len(knob.domain) for knob in family.knobs])
    return np.flatnonzero(np.arange(family.codes.shape[1]) < sizes[:, None])
