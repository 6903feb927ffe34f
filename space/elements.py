"""Bits and bytes of one element of each dtype, in a register and in shared memory."""

from __future__ import annotations

from typing import Final

from space.errors import LayoutError

#: Instructions read fp6 padded to a byte. fp4 is packed, except in `kind::f8f6f4`, which pads it too (PTX ISA 9.0,
#: "Packed formats" of mma and tcgen05.mma).
ELEMENT_BITS: Final[dict[str, int]] = {
    "f64": 64,
    "f32": 32, "s32": 32, "tf32": 32,
    "bf16": 16, "fp16": 16,
    "fp8_e4m3": 8, "fp8_e5m2": 8, "int8": 8, "uint8": 8, "fp6_e2m3": 8, "fp6_e3m2": 8,
    "int4": 4, "uint4": 4, "fp4_e2m1": 4,
    "b1": 1,
}  # fmt: skip


def element_bits(dtype: str) -> int:
    """Bits of one element.

    Raises:
        LayoutError: the dtype is unknown.
    """
    if dtype not in ELEMENT_BITS:
        raise LayoutError(f"dtype {dtype!r} is unknown: use one of {', '.join(ELEMENT_BITS)}")
    return ELEMENT_BITS[dtype]


def element_bytes(dtype: str) -> int:
    """Bytes of one element in shared memory.

    Raises:
        LayoutError: the dtype is unknown or narrower than a byte.
    """
    bits = element_bits(dtype)
    if bits < 8:
        raise LayoutError(
            f"dtype {dtype} has {bits} bits: tiles in shared memory are described in whole bytes; "
            f"describe {8 // bits} packed elements as one uint8"
        )
    return bits // 8
