"""The 64-bit descriptors that tell wgmma and tcgen05 where an operand is in shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Self

from space.errors import LayoutError
from space.layouts.bitfields import Field, in_sixteens, pack, unpack
from space.layouts.swizzle import SWIZZLES, Swizzle

#: The version that a tcgen05 descriptor must have.
VERSION: Final = 1
_IN_SIXTEENS: Final = ("start_address", "leading_byte_offset", "stride_byte_offset")


@dataclass(frozen=True, slots=True)
class MatrixDescriptor:
    """One descriptor, with addresses and offsets in bytes.

    Attributes:
        start_address: shared-memory address of the first element.
        leading_byte_offset, stride_byte_offset: strides, whose meaning depends on major mode and swizzle; see
            `space.layouts.operand`.
        swizzle: a mode that the instruction has.
        base_offset: offset of the tile in the swizzle pattern; 0 if it is aligned.
        NAME: of the word, in messages.
        FIELDS: its bit fields; all other bits are reserved.
        SWIZZLE_CODES: code of each swizzle mode that the instruction has.
    """

    NAME: ClassVar[str]
    FIELDS: ClassVar[tuple[Field, ...]]
    SWIZZLE_CODES: ClassVar[dict[str, int]]

    start_address: int
    leading_byte_offset: int
    stride_byte_offset: int
    swizzle: Swizzle
    base_offset: int = 0

    def encode(self) -> int:
        """The 64 bits.

        Raises:
            LayoutError: a value does not fit its field, or the instruction has no such swizzle.
        """
        if self.swizzle.name not in self.SWIZZLE_CODES:
            raise LayoutError(
                f"wgmma has no swizzle {self.swizzle.name}: use one of {', '.join(self.SWIZZLE_CODES)} (tcgen05 has it)"
            )
        if self.base_offset and not self.swizzle.bits:
            raise LayoutError(f"base_offset = {self.base_offset} without a swizzle: there is no pattern; use 0")
        values = {name: in_sixteens(name, getattr(self, name)) for name in _IN_SIXTEENS}
        values |= {"base_offset": self.base_offset, "swizzle": self.SWIZZLE_CODES[self.swizzle.name]}
        return pack(self.FIELDS, values | self._own_values())

    @classmethod
    def decode(cls, word: int) -> Self:
        """The descriptor in 64 bits.

        Raises:
            LayoutError: reserved bits are set, or the version or the swizzle code is unused.
        """
        fields = unpack(cls.FIELDS, word, 64, cls.NAME)
        if (version := fields.pop("version", VERSION)) != VERSION:
            raise LayoutError(
                f"{word:#x} is not a {cls.NAME}: bits 46-48 are {version}, not {VERSION}; is it a wgmma descriptor?"
            )
        names = {code: name for name, code in cls.SWIZZLE_CODES.items()}
        if (code := fields.pop("swizzle")) not in names:
            raise LayoutError(
                f"{word:#x} is not a {cls.NAME}: swizzle code {code} in bits 61-63 is unused; codes are "
                f"{', '.join(f'{code} ({name})' for code, name in names.items())}"
            )
        bytes_ = {name: fields.pop(name) * 16 for name in _IN_SIXTEENS}
        flags = {name: bool(fields.pop(name)) for name in ("leading_is_address",) if name in fields}
        return cls(**bytes_, swizzle=SWIZZLES[names[code]], **fields, **flags)

    def _own_values(self) -> dict[str, int]:
        """Values of the fields that only this instruction has."""
        return {}


@dataclass(frozen=True, slots=True)
class WgmmaDescriptor(MatrixDescriptor):
    """The descriptor of `wgmma.mma_async` (PTX ISA 9.0 §9.7.15.5.1.2.2, "Matrix Descriptor Format")."""

    NAME = "wgmma descriptor"
    FIELDS = (
        Field("start_address", 0, 13, "address / 16"),
        Field("leading_byte_offset", 16, 29, "offset / 16"),
        Field("stride_byte_offset", 32, 45, "offset / 16"),
        Field("base_offset", 49, 51, "(pattern start >> 7) & 7"),
        Field("swizzle", 62, 63, "0 none, 1 128B, 2 64B, 3 32B"),
    )
    SWIZZLE_CODES: ClassVar[dict[str, int]] = {"none": 0, "128B": 1, "64B": 2, "32B": 3}


@dataclass(frozen=True, slots=True)
class Tcgen05Descriptor(MatrixDescriptor):
    """The descriptor of `tcgen05.mma` (PTX ISA 9.0 §9.7.16.4.1, "Shared Memory Descriptor").

    Attributes:
        leading_is_address: whether the leading field is the address of a second part of the tile, not an offset.
    """

    NAME = "tcgen05 shared-memory descriptor"
    FIELDS = (
        Field("start_address", 0, 13, "address / 16"),
        Field("leading_byte_offset", 16, 29, "offset / 16, or address / 16"),
        Field("stride_byte_offset", 32, 45, "offset / 16"),
        Field("version", 46, 48, "always 1"),
        Field("base_offset", 49, 51, "(pattern start >> 7) & 7"),
        Field("leading_is_address", 52, 52, "0 offset, 1 absolute address (sm_103a, K of 48 B)"),
        Field("swizzle", 61, 63, "0 none, 1 128B with 32B atoms, 2 128B, 4 64B, 6 32B"),
    )
    SWIZZLE_CODES: ClassVar[dict[str, int]] = {"none": 0, "128B_atom32B": 1, "128B": 2, "64B": 4, "32B": 6}

    leading_is_address: bool = False

    def _own_values(self) -> dict[str, int]:
        return {"version": VERSION, "leading_is_address": int(self.leading_is_address)}
