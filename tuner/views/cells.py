"""Cells: the space of a family over two knobs, each cell worth trying, merely legal, or illegal, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from space.columns import Columns
from space.devices import DeviceProfile
from space.enumerate import Space, enumerate_space
from space.errors import FamilyError
from space.explain import legal_mask
from space.knobs import Knob, KnobValue
from space.plug import Family
from space.problem import Problem

CellState = Literal["worth", "not_worth", "illegal"]
#: Configs of the rest of the space that are tried in a cell to see whether any is legal there.
_TRIED: Final = 512


@dataclass(frozen=True, slots=True)
class Cells:
    """A family's space over two knobs; each table has a row for each value of `y`, an entry for each of `x`.

    Attributes:
        worth: configs worth trying.
        state: `worth`; `not_worth` if some config is legal and none is worth trying; else `illegal`.
        rule: the rule that most configs of the cell break; None where something is worth trying.
        expected_us: lowest expected time of the configs worth trying.
    """

    family: str
    x: str
    y: str
    x_values: tuple[KnobValue, ...]
    y_values: tuple[KnobValue, ...]
    worth: list[list[int]]
    state: list[list[CellState]]
    rule: list[list[str | None]]
    expected_us: list[list[float | None]]


def cells_of(space: Space, device: DeviceProfile, x: str, y: str) -> Cells:
    """The cells of a pruned space.

    Raises:
        FamilyError: the family has no such knob, or the two are one.
    """
    family = space.family
    across, down = (_knob(family, name) for name in (x, y))
    if x == y:
        raise FamilyError(f"x and y are both {x}: choose two knobs")
    columns, rows = space.columns, (len(down.domain), len(across.domain))
    if len(columns):
        place = _places(columns, down) * rows[1] + _places(columns, across)
        count = np.bincount(place, minlength=rows[0] * rows[1])
        fastest = np.full(rows[0] * rows[1], np.inf)
        np.minimum.at(fastest, place, family.estimate_us(columns, device))
    else:
        count, fastest = np.zeros(rows[0] * rows[1], np.int64), np.full(rows[0] * rows[1], np.inf)
    state: list[CellState] = ["worth"] * len(count)
    rule: list[str | None] = [None] * len(count)
    sample = _sample(space)
    for empty in np.flatnonzero(count == 0).tolist():
        at = {y: down.domain[empty // rows[1]], x: across.domain[empty % rows[1]]}
        state[empty], rule[empty] = _judged(family, space.problem, device, sample, at)
    expected = [float(us) if np.isfinite(us) else None for us in fastest]
    return Cells(
        family.name, x, y, tuple(across.domain), tuple(down.domain), _table(count.tolist(), rows[1]),
        _table(state, rows[1]), _table(rule, rows[1]), _table(expected, rows[1]),
    )  # fmt: skip


def _knob(family: Family, name: str) -> Knob:
    if name not in family.knob_named:
        raise FamilyError(f"{family.name} has no knob {name!r}: it has {', '.join(family.knob_named)}")
    return family.knob_named[name]


def _places(columns: Columns, knob: Knob) -> npt.NDArray[np.int64]:
    codes = knob.column()
    order = np.argsort(codes)
    return order[np.searchsorted(codes, columns[knob.name], sorter=order)]


def _sample(space: Space) -> npt.NDArray[np.int64]:
    """Codes of some configs, `configs x knobs`; the defaults where nothing is worth trying."""
    family = space.family
    if not len(space):
        return np.array([[knob.encode(knob.default) for knob in family.knobs]], dtype=np.int64)
    chosen = space.columns.take(np.linspace(0, len(space) - 1, min(_TRIED, len(space))).astype(np.intp))
    return np.stack([np.asarray(chosen[knob.name], dtype=np.int64) for knob in family.knobs], axis=1)


def _judged(
    family: Family, problem: Problem, device: DeviceProfile, sample: npt.NDArray[np.int64], at: dict[str, KnobValue]
) -> tuple[CellState, str | None]:
    """State of a cell without anything worth trying, and the rule that most of its configs break."""
    moved = sample.copy()
    for name, value in at.items():
        moved[:, family.places[name]] = family.knob_named[name].encode(value)
    columns = family.rows_of(problem, moved.astype(family.code_type), device)
    legal = legal_mask(family, columns)
    if legal.any():
        broken = [int((~each.mask(columns) & legal).sum()) for each in family.worth]
        return "not_worth", family.worth[int(np.argmax(broken))].id if any(broken) else None
    broken = [int((~rule.mask(columns)).sum()) for rule in family.legal]
    hardest = family.legal[int(np.argmax(broken))].id if broken else None
    # A rule about these two knobs alone judges the whole cell.
    for each, count in zip(family.legal, broken, strict=True):
        if count == len(moved) and family.knobs_read(each) <= set(at):
            return "illegal", each.id
    near = family.rows_of(problem, _two_changes(family, moved[0], set(at)).astype(family.code_type), device)
    if legal_mask(family, near).any():
        return "not_worth", hardest
    # None of these is legal: every config of the cell is looked at, its own knobs first, because they break the rules.
    fixed = [replace(family.knob_named[name], domain=(value,), default=value) for name, value in at.items()]
    alone = replace(family, knobs=(*fixed, *(knob for knob in family.knobs if knob.name not in at)))
    return ("not_worth" if enumerate_space(alone, problem, device, pruned=False).count else "illegal"), hardest


def _two_changes(family: Family, codes: npt.NDArray[np.int64], held: set[str]) -> npt.NDArray[np.int64]:
    """A config with every change of two knobs that are not held, `changes x knobs`."""
    moves = np.array([
        (family.places[knob.name], code)
        for knob in family.knobs if knob.name not in held and knob not in family.free for code in knob.column()
    ])  # fmt: skip
    first, second = (moves[places] for places in np.triu_indices(len(moves)))
    changed = np.repeat(codes[None], len(first), axis=0)
    rows = np.arange(len(first))
    changed[rows, first[:, 0]] = first[:, 1]
    changed[rows, second[:, 0]] = second[:, 1]
    return changed


def _table(values: Sequence[Any], width: int) -> list[list[Any]]:
    return [list(values[first : first + width]) for first in range(0, len(values), width)]
