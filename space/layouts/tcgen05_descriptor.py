"""The 64-bit shared-memory descriptor of `tcgen05.mma`: strides as for wgmma, but other bit fields and codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from space.errors import LayoutError
from space.layouts.bitfields import Field, pack, unpack
from space.layouts.descriptor import MatrixDescriptor
from space.layouts.swizzle import SWIZZLES

#: PTX ISA 9.0 §9.7.16.4.1, "Shared Memory Descriptor". All other bits are reserved.
FIELDS: Final = (
    Field("start_address", 0, 13, "address / 16"),
    Field("leading_byte_offset", 16, 29, "offset / 16, or address / 16"),
    Field("stride_byte_offset", 32, 45, "offset / 16"),
    Field("version", 46, 48, "always 1"),
    Field("base_offset", 49, 51, "(pattern start >> 7) & 7"),
    Field("leading_is_address", 52, 52, "0 offset, 1 absolute address (sm_103a, K of 48 B)"),
    Field("swizzle", 61, 63, "0 none, 1 128B with 32B atoms, 2 128B, 4 64B, 6 32B"),
)
VERSION: Final = 1
SWIZZLE_CODES: Final = {"none": 0, "128B_atom32B": 1, "128B": 2, "64B": 4, "32B": 6}


@dataclass(frozen=True, slots=True)
class Tcgen05Descriptor(MatrixDescriptor):
    """A descriptor whose swizzle is one of `SWIZZLE_CODES`.

    Attributes:
        leading_is_address: whether the leading field is the address of a second part of the tile, not an offset.
    """

    leading_is_address: bool = False

    def encode(self) -> int:
        """The 64 bits.

        Raises:
            LayoutError: a value does not fit its field.
        """
        return pack(
            FIELDS,
            self.common_values()
            | {
                "version": VERSION,
                "leading_is_address": int(self.leading_is_address),
                "swizzle": SWIZZLE_CODES[self.swizzle.name],
            },
        )

    @classmethod
    def decode(cls, word: int) -> Tcgen05Descriptor:
        """The descriptor in 64 bits.

        Raises:
            LayoutError: reserved bits are set, the version is not 1, or the swizzle code is unused.
        """
        fields = unpack(FIELDS, word, 64, "tcgen05 shared-memory descriptor")
        names = {code: name for name, code in SWIZZLE_CODES.items()}
        if fields["version"] != VERSION:
            raise LayoutError(
                f"{word:#x} is not a tcgen05 shared-memory descriptor: bits 46-48 are {fields['version']}, "
                f"not {VERSION}; is it a wgmma descriptor?"
            )
        if fields["swizzle"] not in names:
            raise LayoutError(
                f"{word:#x} is not a tcgen05 shared-memory descriptor: swizzle code {fields['swizzle']} in bits 61-63 "
                f"is unused; codes are {', '.join(f'{code} ({name})' for code, name in names.items())}"
            )
        return cls(
            fields["start_address"] * 16, fields["leading_byte_offset"] * 16, fields["stride_byte_offset"] * 16,
            SWIZZLES[names[fields["swizzle"]]], fields["base_offset"], bool(fields["leading_is_address"]),
        )  # fmt: skip
