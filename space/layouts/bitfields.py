"""Words made of bit fields: fitting values into them, and taking them out again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from space.errors import LayoutError


@dataclass(frozen=True, slots=True)
class Field:
    """Bits `low` to `high`, both included."""

    name: str
    low: int
    high: int
    meaning: str = ""

    @property
    def most(self) -> int:
        """Largest value that fits."""
        return (1 << (self.high - self.low + 1)) - 1

    def of(self, word: int) -> int:
        """This field of a word."""
        return (word >> self.low) & self.most


def pack(fields: tuple[Field, ...], values: Mapping[str, int]) -> int:
    """The word that holds `values` by field name; fields not named are 0.

    Raises:
        LayoutError: a value does not fit its field.
    """
    word = 0
    for field in fields:
        value = values.get(field.name, 0)
        if not 0 <= value <= field.most:
            raise LayoutError(
                f"{field.name} = {value} does not fit bits {field.low}-{field.high}: it must be 0 to {field.most}"
            )
        word |= value << field.low
    return word


def unpack(fields: tuple[Field, ...], word: int, bits: int, what: str) -> dict[str, int]:
    """Every field of a word by name.

    Raises:
        LayoutError: the word is negative or longer than `bits`, or has reserved bits set.
    """
    if not 0 <= word < 1 << bits:
        raise LayoutError(f"{word:#x} is no {what}: it has {bits} bits; give 0x0 to {(1 << bits) - 1:#x}")
    covered = pack(fields, {field.name: field.most for field in fields})
    if reserved := word & ~covered:
        places = ", ".join(str(bit) for bit in range(bits) if reserved >> bit & 1)
        raise LayoutError(
            f"{word:#x} is no {what}: reserved bit {places} is set; is a field shifted to another architecture's place?"
        )
    return {field.name: field.of(word) for field in fields}


def in_sixteens(name: str, value_bytes: int) -> int:
    """`matrix-descriptor-encode(x)` of the PTX ISA, for values that survive it: x / 16.

    Raises:
        LayoutError: bits would be lost.
    """
    if value_bytes % 16 or not 0 <= value_bytes < 1 << 18:
        raise LayoutError(
            f"{name} = {value_bytes:,} B can't be encoded: it must be a multiple of 16 from 0 to {(1 << 18) - 16:,}"
        )
    return value_bytes // 16
