"""The 64-bit matrix descriptor that tells `wgmma.mma_async` where an operand is in shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from space.errors import LayoutError
from space.layouts.bitfields import Field, pack, unpack
from space.layouts.descriptor import MatrixDescriptor
from space.layouts.swizzle import SWIZZLES

#: PTX ISA 9.0 §9.7.15.5.1.2.2, "Matrix Descriptor Format". All other bits are reserved.
FIELDS: Final = (
    Field("start_address", 0, 13, "address / 16"),
    Field("leading_byte_offset", 16, 29, "offset / 16"),
    Field("stride_byte_offset", 32, 45, "offset / 16"),
    Field("base_offset", 49, 51, "(pattern start >> 7) & 7"),
    Field("swizzle", 62, 63, "0 none, 1 128B, 2 64B, 3 32B"),
)
SWIZZLE_CODES: Final = {"none": 0, "128B": 1, "64B": 2, "32B": 3}


@dataclass(frozen=True, slots=True)
class WgmmaDescriptor(MatrixDescriptor):
    """A descriptor whose swizzle is one of `SWIZZLE_CODES`."""

    def encode(self) -> int:
        """The 64 bits.

        Raises:
            LayoutError: a value does not fit its field, or wgmma has no such swizzle.
        """
        if self.swizzle.name not in SWIZZLE_CODES:
            raise LayoutError(
                f"wgmma has no swizzle {self.swizzle.name}: use one of {', '.join(SWIZZLE_CODES)} (tcgen05 has it)"
            )
        return pack(FIELDS, self.common_values() | {"swizzle": SWIZZLE_CODES[self.swizzle.name]})

    @classmethod
    def decode(cls, word: int) -> WgmmaDescriptor:
        """The descriptor in 64 bits.

        Raises:
            LayoutError: reserved bits are set, so this is not a wgmma descriptor.
        """
        fields = unpack(FIELDS, word, 64, "wgmma descriptor")
        names = {code: name for name, code in SWIZZLE_CODES.items()}
        return cls(
            fields["start_address"] * 16, fields["leading_byte_offset"] * 16, fields["stride_byte_offset"] * 16,
            SWIZZLES[names[fields["swizzle"]]], fields["base_offset"],
        )  # fmt: skip
