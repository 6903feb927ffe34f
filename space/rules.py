"""Rules, as data: which configs are legal, and which are worth trying.

A rule is one predicate over columns. It filters a million configs in NumPy and, applied to one row, explains one config
to a person. There are two kinds:

* a *legal* rule states a limit of the hardware, the compiler, the driver or the kernel;
* a *worth* rule removes legal configs that are never faster than some other candidate; each can be switched off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from space.columns import BoolColumn, Columns
from space.knobs import Knob


@dataclass(frozen=True, slots=True)
class Rule:
    """One condition that configs must meet.

    Attributes:
        id: `subject.limit`, stable.
        sentence: the condition in words.
        source: where the fact is documented, or what showed it.
        reads: knobs and derived values that the predicate reads; empty for a rule about the problem alone.
        holds: the predicate: true for rows that meet the condition.
        numbers: the arithmetic of the first row, as in `245,760 B > 232,448 B on sm_90a`.
        kind: `legal` or `worth`.
    """

    id: str
    sentence: str
    source: str
    reads: tuple[str, ...]
    holds: Callable[[Columns], BoolColumn | bool]
    numbers: Callable[[Columns], str]
    kind: Literal["legal", "worth"] = "legal"

    def mask(self, columns: Columns) -> BoolColumn:
        """The predicate as a full mask: one value per row, or per cell of a grid."""
        held = self.holds(columns)
        if isinstance(held, np.ndarray) and held.shape == columns.shape:
            return held
        return np.full(columns.shape, held, dtype=np.bool_)


#: Makes a worth rule from its id, its sentence, the reason, the columns that it reads, and the predicate.
MakeWorth = Callable[[str, str, str, tuple[str, ...], Callable[[Columns], BoolColumn | bool]], Rule]


def worth_of(knobs: Sequence[Knob]) -> MakeWorth:
    """A function that makes worth rules of a family; their numbers are the values that they read."""
    by_name = {knob.name: knob for knob in knobs}

    def value(c: Columns, name: str) -> str:
        number = c.first(name)
        return str(by_name[name].decode(number)) if name in by_name else f"{number:,}"

    def make(
        id_: str, sentence: str, why: str, reads: tuple[str, ...], holds: Callable[[Columns], BoolColumn | bool]
    ) -> Rule:
        def numbers(c: Columns) -> str:
            return ", ".join(f"{name} {value(c, name)}" for name in reads)

        return Rule(id_, sentence, why, reads, holds, numbers, kind="worth")

    return make
