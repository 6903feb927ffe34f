"""Launcher of `sm90_wgmma`: tensor maps, grid and arguments. Knows nothing of timing or verification."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np

from space.arch import MAX_GRID_BLOCKS, VECTOR_BYTES
from space.config import Config
from space.devices import DeviceProfile
from space.families.common import input_bytes, output_bytes, stores_chunks
from space.families.sm90_wgmma.derive import SWAPPED_STORE_BYTES
from space.families.sm90_wgmma.operands import lies_mn_major, needs_packing, pitch_bytes
from space.families.sm90_wgmma.stream_k import sharing
from space.instructions.tma import ADDRESS_STEP_BYTES, MAP_BYTES, SWIZZLE_SPANS
from space.kinds.gemm import Gemm
from space.layouts.swizzle import row_bytes_of
from workers.cuda.copies import Copy, Strides
from workers.cuda.driver import Arguments, Launch
from workers.cuda.families.arguments import (
    EVICT_FIRST,
    EVICT_LAST,
    EVICT_NORMAL,
    Divider,
    GemmArguments,
    TileGrid,
    epilogue_places,
)
from workers.cuda.families.packing import OperandName, Packing
from workers.cuda.families.prepared import Passes, PreparedLauncher, split_workspace
from workers.cuda.families.shared import Box, Place, Shared, TensorMap, word

ENTRY: Final = "gemm"
_HINTS: Final = {
    "none": (EVICT_NORMAL, EVICT_NORMAL),
    "stream_a": (EVICT_FIRST, EVICT_LAST),
    "stream_b": (EVICT_LAST, EVICT_FIRST),
}


class SharedTiles(ctypes.Structure):
    """Mirrors `SharedTiles` of sm90_wgmma/arguments.cuh."""

    _fields_ = (
        ("first", ctypes.c_int), ("owners", ctypes.c_int), ("kept", ctypes.c_int),
        ("left", Divider), ("piece", Divider),
    )  # fmt: skip

    @classmethod
    def none(cls) -> SharedTiles:
        """Every tile is multiplied by one cluster: the first shared tile lies past the last one."""
        return cls(MAX_GRID_BLOCKS, 0, 0, Divider.of(1), Divider.of(1))

    @classmethod
    def of(cls, tiles: int, clusters: int, k_stages: int) -> SharedTiles:
        """What `sharing` says of one launch."""
        owners, peers, kept = (int(count) for count in sharing(*map(np.asarray, (tiles, clusters, k_stages))))
        if owners == 0:
            return cls.none()
        left = k_stages - kept
        return cls(tiles - owners, owners, kept, Divider.of(left), Divider.of(-(-owners * left // peers)))


class WgmmaArguments(GemmArguments):
    """Mirrors `WgmmaArguments` of sm90_wgmma/arguments.cuh."""

    _fields_: ClassVar[Sequence[tuple[str, type[Any]]]] = (
        ("grid", TileGrid), ("shared", SharedTiles),
    )  # fmt: skip


class ScaledArguments(WgmmaArguments):
    """Mirrors `ScaledArguments` of sm90_wgmma/entry_scaled.cuh."""

    _fields_ = (
        ("scale_a", ctypes.c_void_p), ("scale_b", ctypes.c_void_p),
    )  # fmt: skip


class WgmmaLauncher(PreparedLauncher):
    """The kernel, behind a packing pass where an operand needs one."""

    strided = True

    def __init__(self, problem: Gemm, config: Config, cubin: bytes, device: DeviceProfile, shared: Shared) -> None:
        super().__init__(problem, config, cubin, device, shared)
        derived = self._derived
        self._shares = config.number("stream_k") == 1
        self._swapped, self._direct = config.number("swap_ab") == 1, config["epilogue"] == "direct"
        self._launch = Launch(
            self._module.function(ENTRY), derived["threads"], derived["shared_memory_bytes"], derived["cluster_size"],
            pdl=config.number("pdl") == 1 and not self._shares, together=self._shares,
        )  # fmt: skip
        self._tiles = derived["tiles_m"] * derived["tiles_n"] * problem.batch * config.number("split_k")
        if config.number("cluster_k") > 1:
            self.clusters = self._tiles  # a cluster along K adds up a single tile
            self._launch.set_grid(self.clusters)
        else:
            self.clusters = self._launch.fill(self._tiles, device.sm_count)
        self._shared_tiles = SharedTiles.none()
        if self._shares:
            self._shared_tiles = SharedTiles.of(self._tiles, self.clusters, derived["k_iterations"])
        names: tuple[OperandName, ...] = ("a", "b")
        pitches = {name: pitch_bytes(problem, name) for name in names if needs_packing(problem, name)}
        self._packing = Packing(problem, self._module, device.sm_count, shared, pitches)
        self._partials, self._semaphores = self._workspace()

    def prepare(self, copy: Copy) -> Passes:
        """The packing pass, where there is one, then the kernel."""
        maps = self._map_of("a", copy), self._map_of("b", copy), self._map_c(copy)
        return *self._packing.prepare(copy), (self._launch, self._arguments(copy, *maps))

    def places(self, passes: Passes) -> dict[str, Place]:
        """Places of all addresses; descriptors hold those of A and B, and of C where TMA stores it."""
        *packing, (_, arguments) = passes
        map_a, map_b, map_c, rest = arguments.values
        found = epilogue_places(rest)
        if not self._direct:
            found["c"] = Place([map_c], [word(rest, "c")])
        if self._problem.scales:
            found |= {name: Place(words=[word(rest, name)]) for name in ("scale_a", "scale_b")}
        if self._swapped:
            map_a, map_b = map_b, map_a
        return found | self._packing.places(packing, {"a": ([map_a], ()), "b": ([map_b], ())})

    @property
    def alignment_bytes(self) -> dict[str, int]:
        """TMA asks for 16 bytes, and so does a direct store of eight 16-bit elements at once."""
        found = {name: ADDRESS_STEP_BYTES for name in "ab" if not needs_packing(self._problem, name)}
        if not self._direct:
            return found | {"c": ADDRESS_STEP_BYTES}
        return found | {"c": VECTOR_BYTES} if stores_chunks(self._problem, self._config) else found

    def _workspace(self) -> tuple[int, int]:
        """Addresses of partial sums, of slices or of shared tiles, and of semaphores: one per part of a tile whose K is
        cut."""
        number, size = self._config.number, self._derived["cluster_size"]
        tiles, pieces = self._tiles // number("split_k"), self._tiles
        if self._shared_tiles.kept:
            tiles, pieces = self._shared_tiles.owners, self.clusters + self._shared_tiles.owners
        elif number("split_k") == 1:
            return 0, 0
        sums = pieces * size * number("tile_m") * number("tile_n")
        return split_workspace(self._shared, sums, tiles * size * self._derived["team"])

    def _map_of(self, kernel_operand: OperandName, copy: Copy) -> TensorMap:
        name, maps = self._maps[kernel_operand]
        return maps(self._packing.address(name, copy))

    @cached_property
    def _maps(self) -> dict[OperandName, tuple[OperandName, Callable[[int], TensorMap]]]:
        """For the kernel's A and B: the problem's operand, which swap_ab swaps, and its descriptors."""
        return {"a": self._maps_of("a"), "b": self._maps_of("b")}

    def _maps_of(self, kernel_operand: OperandName) -> tuple[OperandName, Callable[[int], TensorMap]]:
        number, p = self._config.number, self._problem
        is_a = kernel_operand == "a"
        name: OperandName = "a" if is_a != self._swapped else "b"
        layout, size = self._packing.layout(name), input_bytes(p)
        swizzle, rows, sharers = (
            (number("swizzle_a"), number("tile_m"), number("cluster_n"))
            if is_a
            else (number("swizzle_b"), number("tile_n"), number("cluster_m"))
        )
        lines = number("tile_k") if lies_mn_major(p, name) else rows
        lies = self._shared.strides.get(name) or Strides(layout.pitch, layout.pitch * layout.lines)
        box = Box(
            size, layout.columns, layout.lines, p.batch, lies.line * size, lies.matrix * size,
            row_bytes_of(swizzle) // size,
            lines // sharers, swizzle, number("l2_promotion"),
        )  # fmt: skip
        return name, self._shared.maps(box)

    def _map_c(self, copy: Copy) -> TensorMap:
        return ctypes.create_string_buffer(MAP_BYTES) if self._direct else self._maps_c(copy.c)

    @cached_property
    def _maps_c(self) -> Callable[[int], TensorMap]:
        p, derived, number = self._problem, self._derived, self._config.number
        size = output_bytes(p)
        if self._swapped:
            box_columns, box_lines = SWAPPED_STORE_BYTES // size, derived["staged_columns"]
        else:
            box_columns, box_lines = derived["store_box_n"], number("tile_m") // derived["team"]
        pitch, swizzle = p.n * size, box_columns * size
        box = Box(
            size, p.n, p.m, p.batch, pitch, pitch * p.m, box_columns, box_lines,
            swizzle if swizzle in SWIZZLE_SPANS else 0,
        )  # fmt: skip
        return self._shared.maps(box)

    def _arguments(self, copy: Copy, map_a: TensorMap, map_b: TensorMap, map_c: TensorMap) -> Arguments:
        arguments = self._of_every_copy.over(copy)
        if isinstance(arguments, ScaledArguments):
            arguments.scale_a, arguments.scale_b = copy.scale_a or None, copy.scale_b or None
        return Arguments(map_a, map_b, map_c, arguments)

    @cached_property
    def _of_every_copy(self) -> WgmmaArguments:
        """The arguments without addresses: a problem of tiny operands has a hundred copies."""
        p, derived = self._problem, self._derived
        m, n = (p.n, p.m) if self._swapped else (p.m, p.n)
        slices = self._config.number("split_k") * self._config.number("cluster_k")
        kind = ScaledArguments if p.scales else WgmmaArguments
        return kind(
            None, None, None, self._partials or None, self._semaphores or None,
            *_HINTS[str(self._config["cache_hint"])], p.n, p.m * p.n, m, n, 1.0, 0.0,
            TileGrid.of(self._config, derived, self._tiles, slices), self._shared_tiles,
        )  # fmt: skip


LAUNCHER: Final = WgmmaLauncher
