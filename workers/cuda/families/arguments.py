"""Arguments that the kernels of several families take."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from space.config import Config
from space.families.common import group_width
from workers.cuda.copies import Copy
from workers.cuda.families.shared import Place, word

#: L2 cache policies as `createpolicy` makes them: CUTLASS, cute/arch/copy_sm90_desc.hpp, TMA::CacheHintSm90.
EVICT_NORMAL, EVICT_FIRST, EVICT_LAST = 0x1000000000000000, 0x12F0000000000000, 0x14F0000000000000


class Divider(ctypes.Structure):
    """Mirrors `Divider` of common/divider.cuh: x // d == x * multiplier >> 32 + shift for 0 <= x < 2^31.

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


class TileGrid(ctypes.Structure):
    """Mirrors `TileGrid` of common/tile_grid.cuh: how the tiles of a launch are numbered."""

    _fields_ = (
        ("tiles", ctypes.c_int), ("k_stages", ctypes.c_int), ("along_n", ctypes.c_int), ("last_group", ctypes.c_int),
        ("splits", Divider), ("product", Divider), ("group", Divider), ("width", Divider), ("last_width", Divider),
    )  # fmt: skip

    @classmethod
    def of(cls, config: Config, derived: Mapping[str, int], tiles: int, splits: int) -> TileGrid:
        """The grid of one config.

        Args:
            derived: `tiles_m` and `tiles_n` of one product, and `k_iterations`.
            tiles: of all products, each slice of K that has a tile of its own counted.
            splits: slices of K of one tile.
        """
        across, along, along_n = derived["tiles_m"], derived["tiles_n"], config["raster"] == "along_n"
        if along_n:
            across, along = along, across
        width = int(group_width(np.asarray(across), np.asarray(config.number("raster_group"))))
        last = (across - 1) // width
        dividers = (splits, across * along, width * along, width, across - last * width)
        return cls(tiles, derived["k_iterations"], int(along_n), last, *map(Divider.of, dividers))


class GemmArguments(ctypes.Structure):
    """Mirrors `GemmArguments` of common/arguments.cuh: what every kernel takes. Families derive theirs from it."""

    _fields_: ClassVar[Sequence[tuple[str, type[Any]]]] = (
        ("c", ctypes.c_void_p), ("source", ctypes.c_void_p), ("bias", ctypes.c_void_p),
        ("partials", ctypes.c_void_p), ("semaphores", ctypes.c_void_p),
        ("hint_a", ctypes.c_uint64), ("hint_b", ctypes.c_uint64),
        ("ldc", ctypes.c_longlong), ("batch_stride_c", ctypes.c_longlong),
        ("m", ctypes.c_int), ("n", ctypes.c_int), ("alpha", ctypes.c_float), ("beta", ctypes.c_float),
    )  # fmt: skip

    def over(self, copy: Copy) -> Self:
        """The same arguments with one copy's addresses of C and of what its epilogue reads, its alpha and its beta."""
        made = type(self).from_buffer_copy(self)
        made.c, made.source, made.bias = copy.c, copy.source or None, copy.bias or None
        made.alpha, made.beta = copy.alpha, copy.beta
        return made


def epilogue_places(arguments: GemmArguments) -> dict[str, Place]:
    """Places of the addresses of C, of what its epilogue reads, and of split-K's workspace."""
    names = ("c", "source", "bias", "partials", "semaphores")
    return {name: Place(words=[word(arguments, name)]) for name in names}
