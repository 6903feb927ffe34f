"""What launches of our own families pass to their kernels beside the operands that they read."""

from __future__ import annotations

import ctypes
from typing import Final

import numpy as np

from space.families.sm90_wgmma.stream_k import sharing
from workers.cuda.families.shared import Place, word

#: L2 cache policies as `createpolicy` makes them: CUTLASS, cute/arch/copy_sm90_desc.hpp, TMA::CacheHintSm90.
EVICT_NORMAL, EVICT_FIRST, EVICT_LAST = 0x1000000000000000, 0x12F0000000000000, 0x14F0000000000000

#: More than there are tiles.
MOST_TILES: Final = 2**31 - 1


class Divider(ctypes.Structure):
    """Mirrors `Divider` of sm90_wgmma/arguments.cuh: x // d == x * multiplier >> 32 + shift for 0 <= x < 2^31.

    With multiplier = ceil(2^(31 + L) / d) and L = ceil(log2 d) the error of the product stays below 1 / d
    (Granlund and Montgomery, "Division by Invariant Integers using Multiplication", 1994, theorem 4.2).
    """

    _fields_ = (("multiplier", ctypes.c_uint32), ("shift", ctypes.c_uint32), ("divisor", ctypes.c_uint32))

    @classmethod
    def of(cls, divisor: int) -> Divider:
        """Divides by `divisor`, 1 to 2^31 - 1."""
        if divisor == 1:
            return cls(0, 0, 1)
        bits = (divisor - 1).bit_length()
        return cls(-(-(1 << (31 + bits)) // divisor), bits - 1, divisor)


class SharedTiles(ctypes.Structure):
    """Mirrors `SharedTiles` of sm90_wgmma/arguments.cuh."""

    _fields_ = (
        ("first", ctypes.c_int), ("owners", ctypes.c_int), ("kept", ctypes.c_int),
        ("left", Divider), ("piece", Divider),
    )  # fmt: skip

    @classmethod
    def none(cls) -> SharedTiles:
        """Every tile is multiplied by one cluster."""
        return cls(MOST_TILES, 0, 0, Divider.of(1), Divider.of(1))

    @classmethod
    def of(cls, tiles: int, clusters: int, k_stages: int) -> SharedTiles:
        """What `sharing` says of one launch."""
        owners, helpers, kept = (int(count) for count in sharing(*map(np.asarray, (tiles, clusters, k_stages))))
        if owners == 0:
            return cls.none()
        left = k_stages - kept
        return cls(tiles - owners, owners, kept, Divider.of(left), Divider.of(-(-owners * left // helpers)))


class GemmArguments(ctypes.Structure):
    """Mirrors `GemmArguments` of sm90_wgmma/arguments.cuh."""

    _fields_ = (
        ("c", ctypes.c_void_p), ("source", ctypes.c_void_p), ("bias", ctypes.c_void_p),
        ("partials", ctypes.c_void_p), ("meetings", ctypes.c_void_p),
        ("hint_a", ctypes.c_uint64), ("hint_b", ctypes.c_uint64),
        ("ldc", ctypes.c_longlong), ("batch_stride_c", ctypes.c_longlong),
        ("m", ctypes.c_int), ("n", ctypes.c_int), ("alpha", ctypes.c_float), ("beta", ctypes.c_float),
        ("tiles", ctypes.c_int), ("k_stages", ctypes.c_int), ("along_n", ctypes.c_int), ("last_group", ctypes.c_int),
        ("splits", Divider), ("product", Divider), ("group", Divider), ("width", Divider), ("last_width", Divider),
        ("shared", SharedTiles),
    )  # fmt: skip


def epilogue_places(arguments: GemmArguments) -> dict[str, Place]:
    """Where C, what its epilogue reads, and split-K's workspace stand."""
    names = ("c", "source", "bias", "partials", "meetings")
    return {name: Place(words=[word(arguments, name)]) for name in names}
