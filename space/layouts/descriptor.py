"""What the shared-memory descriptors of wgmma and tcgen05 have in common."""

from __future__ import annotations

from dataclasses import dataclass

from space.errors import LayoutError
from space.layouts.bitfields import in_sixteens
from space.layouts.swizzle import Swizzle


@dataclass(frozen=True, slots=True)
class MatrixDescriptor:
    """One descriptor, with addresses and offsets in bytes.

    Attributes:
        start_address: shared-memory address of the first element.
        leading_byte_offset, stride_byte_offset: strides, whose meaning depends on major mode and swizzle; see
            `space.layouts.operand`.
        swizzle: a mode that the instruction has.
        base_offset: offset of the tile in the swizzle pattern; 0 if it is aligned.
    """

    start_address: int
    leading_byte_offset: int
    stride_byte_offset: int
    swizzle: Swizzle
    base_offset: int = 0

    def common_values(self) -> dict[str, int]:
        """Values of the bit fields that both instructions have, by name; the codes of swizzles differ.

        Raises:
            LayoutError: a value cannot be encoded.
        """
        if self.base_offset and not self.swizzle.bits:
            raise LayoutError(f"base_offset = {self.base_offset} without a swizzle: there is no pattern; use 0")
        return {
            "start_address": in_sixteens("start_address", self.start_address),
            "leading_byte_offset": in_sixteens("leading_byte_offset", self.leading_byte_offset),
            "stride_byte_offset": in_sixteens("stride_byte_offset", self.stride_byte_offset),
            "base_offset": self.base_offset,
        }
