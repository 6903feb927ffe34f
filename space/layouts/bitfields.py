"""Packs values into the bit fields of a word, and unpacks them."""

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
        """The largest value that fits."""
        return (1 << (self.high - self.low + 1)) - 1

    def of(self, word: int) -> int:
        """The value of this field in a word."""
        return (word >> self.low) & self.most


def pack(fields: tuple[Field, ...], values: Mapping[str, int]) -> int:
    """The word with these values, by field name; other fields are 0.

    Raises:
        LayoutError: a value does not fit its field.
    """
    word = 0
    for field in fields:
        value = values.get(field.name, 0)
        if not 0 <= value <= field.most:
            raise LayoutError(
                f"{field.name} = {value} does not fit bits {field.low}-{field.high}: give 0 to {field.most}"
            )
        word |= value << field.low
    return word


def unpack(fields: tuple[Field, ...], word: int, bits: int, what: str) -> dict[str, int]:
    """The value of every field of a word, by name.

    Raises:
        LayoutError: the word does not fit `bits` bits, or reserved bits are set.
    """
    if not 0 <= word < 1 << bits:
        raise LayoutError(f"{word:#x} is not a {what}, which has {bits} bits: give 0x0 to {(1 << bits) - 1:#x}")
    covered = pack(fields, {field.name: field.most for field in fields})
    if reserved := word & ~covered:
        places = ", ".join(str(bit) for bit in range(bits) if reserved >> bit & 1)
        raise LayoutError(
            f"{word:#x} is not a {what}: reserved bit {places} is set; "
            f"does the word follow another architecture's layout?"
        )
    return {field.name: field.of(word) for field in fields}


def in_sixteens(name: str, value_bytes: int) -> int:
    """`matrix-descriptor-encode(x)` of the PTX ISA, x / 16, for values that lose no bits by it.

    Raises:
        LayoutError: the value would lose bits.
    """
    if value_bytes % 16 or not 0 <= value_bytes < 1 << 18:
        raise LayoutError(
            f"{name} = {value_bytes:,} B cannot be encoded: give a multiple of 16 from 0 to {(1 << 18) - 16:,}"
        )
    return value_bytes // 16
