"""Knobs: the free choices of a kernel family, each with its domain."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from space.errors import ConfigError

KnobValue: TypeAlias = int | str
#: A whole number as `str` writes it.
_WHOLE: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")


@dataclass(frozen=True, slots=True)
class Knob:
    """One free choice of a family.

    Attributes:
        name: the field's own term, the same in Python, SQL, URLs and on the command line.
        domain: all values in order; all int or all str. A range may be too long to be listed.
        default: value in a config that does not name this knob.
        decides: `compile` if the value changes the cubin, `launch` if it does not.
        meaning: one sentence, with the unit.
    """

    name: str
    domain: Sequence[KnobValue]
    default: KnobValue
    decides: Literal["compile", "launch"]
    meaning: str

    def check(self, value: object) -> KnobValue:
        """`value` as a member of the domain; text of a number counts as the number.

        Raises:
            ConfigError: the value is outside the domain.
        """
        if isinstance(self.domain, range):
            number = int(str(value)) if _WHOLE.fullmatch(str(value)) else None
            if number is not None and number in self.domain:
                return number
        elif (member := _by_text(tuple(self.domain)).get(str(value))) is not None:
            return member
        raise ConfigError(f"{self.name} = {value!r:.80} is outside its domain: use one of {self._domain_text()}")

    def column(self) -> npt.NDArray[np.int64]:
        """The domain as a column: numbers as they are, words as codes 0, 1, …"""
        return np.array([self.encode(value) for value in self.domain], dtype=np.int64)

    def encode(self, value: KnobValue) -> int:
        """The number that represents `value` in a column."""
        return value if isinstance(value, int) else self.domain.index(value)

    def encoded(self, values: Sequence[KnobValue]) -> Sequence[KnobValue]:
        """The numbers that represent many values."""
        if not isinstance(self.domain[0], str):
            return values
        codes = {word: number for number, word in enumerate(self.domain)}
        return [codes[value] for value in values]

    def decode(self, number: int) -> KnobValue:
        """The inverse of `encode`."""
        return self.domain[number] if isinstance(self.domain[0], str) else number

    def _domain_text(self) -> str:
        if len(self.domain) <= 12:
            return ", ".join(map(str, self.domain))
        return f"{', '.join(map(str, self.domain[:4]))} … {self.domain[-1]}"


@cache
def _by_text(domain: tuple[KnobValue, ...]) -> Mapping[str, KnobValue]:
    """The members of a domain by how they are written."""
    return {str(member): member for member in domain}
