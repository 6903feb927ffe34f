"""Rules: what is legal and what is worth trying, as data.

A rule is one predicate over columns. The same predicate filters a million configs in NumPy and, on one
row, explains one config to a person. Two kinds:

* a *legal* rule states a limit of the hardware, the compiler, the driver or the kernel;
* a *worth* rule says "legal, but another candidate is never slower"; each can be switched off.
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
    """One clause of legality, or of dominance.

    Attributes:
        id: `subject.limit`, stable.
        sentence: what must hold, for a person.
        source: where the fact is written down.
        reads: knobs and derived values that the predicate needs; empty for a rule about the problem alone.
        holds: true where a row obeys.
        numbers: the rule's arithmetic for the first row, as in `245,760 B > 232,448 B on sm_90a`.
        kind: `legal`, or `worth` for dominance.
    """

    id: str
    sentence: str
    source: str
    reads: tuple[str, ...]
    holds: Callable[[Columns], BoolColumn | bool]
    numbers: Callable[[Columns], str]
    kind: Literal["legal", "worth"] = "legal"

    def mask(self, columns: Columns) -> BoolColumn:
        """`holds` for every row, or for every place of a grid."""
        held = self.holds(columns)
        if isinstance(held, np.ndarray) and held.shape == columns.shape:
            return held
        return np.full(columns.shape, held, dtype=np.bool_)


#: Id, sentence, why, what it reads, and the predicate.
MakeWorth = Callable[[str, str, str, tuple[str, ...], Callable[[Columns], BoolColumn | bool]], Rule]


def worth_of(knobs: Sequence[Knob]) -> MakeWorth:
    """Makes the worth rules of a family; their numbers are the values that they read, words as a person writes them."""
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
