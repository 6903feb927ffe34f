"""Launcher of `mma_sync`: grid and arguments. Knows nothing of timing or verification."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Final

from space.arch import VECTOR_BYTES
from space.config import Config
from space.devices import DeviceProfile
from space.families.common import input_bytes, stores_chunks
from space.families.mma_sync.operands import copy_bytes, lies_mn_major, needs_packing, pitch_bytes
from space.instructions.operand import majors_of
from space.instructions.tma import SWIZZLE_SPANS
from space.kinds.gemm import Gemm
from workers.cuda.copies import Copy
from workers.cuda.driver import Arguments, Launch
from workers.cuda.families.arguments import EVICT_NORMAL, Divider, GemmArguments, TileGrid, epilogue_places
from workers.cuda.families.packing import OperandName, Packing, Reads
from workers.cuda.families.prepared import Passes, PreparedLauncher, split_workspace
from workers.cuda.families.shared import Box, Place, Shared, TensorMap, word

ENTRY: Final = "gemm"
_NAMES: Final[tuple[OperandName, ...]] = ("a", "b")


class StageShares(ctypes.Structure):
    """Mirrors `StageShares` of mma_sync/arguments.cuh."""

    _fields_ = (
        ("tiles", ctypes.c_int), ("longer", ctypes.c_int), ("tile", Divider), ("share", Divider),
        ("longer_share", Divider),
    )  # fmt: skip

    @classmethod
    def of(cls, tiles: int, blocks: int, k_stages: int) -> StageShares:
        """Equal shares of the stages of `tiles` tiles for as many blocks; of none if `tiles` is 0."""
        each, longer = divmod(tiles * k_stages, max(blocks, 1))
        return cls(tiles, longer, *map(Divider.of, (k_stages, max(each, 1), each + 1)))


class MmaSyncArguments(GemmArguments):
    """Mirrors `MmaSyncArguments` of mma_sync/arguments.cuh."""

    _fields_ = (
        ("a", ctypes.c_void_p), ("b", ctypes.c_void_p), ("pitch_a", ctypes.c_longlong), ("pitch_b", ctypes.c_longlong),
        ("batch_pitch_a", ctypes.c_longlong), ("batch_pitch_b", ctypes.c_longlong), ("k", ctypes.c_int),
        ("grid", TileGrid), ("shares", StageShares),
    )  # fmt: skip


def operands_of(config: Config) -> dict[OperandName, OperandName]:
    """The problem's operand by the kernel's, which swap_ab exchanges."""
    return {"a": "b", "b": "a"} if config["swap_ab"] else {"a": "a", "b": "b"}


def arguments_of(
    problem: Gemm, config: Config, derived: Mapping[str, int], copy: Copy, partials: int = 0, semaphores: int = 0
) -> MmaSyncArguments:
    """The arguments of a launch over one copy; the addresses of A and B are those of the copy, packed or not.

    Args:
        partials, semaphores: addresses of partial sums and semaphores; 0 if every block multiplies whole tiles.
    """
    p, number, names = problem, config.number, operands_of(config)
    m, n = (p.n, p.m) if config["swap_ab"] else (p.m, p.n)
    addresses = {"a": copy.a, "b": copy.b}
    tiles = derived["tiles_m"] * derived["tiles_n"] * p.batch * number("split_k")
    return MmaSyncArguments(
        copy.c, copy.source or None, copy.bias or None, partials or None, semaphores or None, EVICT_NORMAL,
        EVICT_NORMAL, p.n, p.m * p.n, m, n, copy.alpha, copy.beta,
        *(addresses[names[name]] for name in names), *(pitch_bytes(p, names[name]) for name in names),
        *(_batch_pitch_bytes(p, names[name]) for name in names), p.k,
        TileGrid.of(config, derived, tiles, number("split_k")),
        StageShares.of(derived["shared_tiles"], derived["sharing_blocks"], derived["k_iterations"]),
    )  # fmt: skip


def box_of(problem: Gemm, config: Config, operand: OperandName, own: OperandName) -> Box:
    """How TMA copies the kernel's `a` or `b`, which is the problem's operand `own`: a span of all its lines at a time.

    A span is as wide as `Operand` of mma_sync/shape.cuh makes it: 128, 64, 32 or 16 bytes, whichever divides a line.
    """
    size, number, along_mn = input_bytes(problem), config.number, lies_mn_major(problem, own)
    rows, depth = number("tile_m" if operand == "a" else "tile_n"), number("tile_k")
    lines, line = (depth, rows * size) if along_mn else (rows, depth * size)
    span = next(bytes_ for bytes_ in (128, 64, 32, 16) if line % bytes_ == 0)
    extent = problem.m if own == "a" else problem.n
    columns, all_lines = (extent, problem.k) if along_mn else (problem.k, extent)
    return Box(
        size, columns, all_lines, problem.batch, pitch_bytes(problem, own), _batch_pitch_bytes(problem, own),
        span // size, lines, span if config["swizzle"] and span in SWIZZLE_SPANS else 0, number("prefetch_bytes"),
    )  # fmt: skip


def _batch_pitch_bytes(problem: Gemm, operand: OperandName) -> int:
    """Bytes from one product's `a` or `b` to the next one's, as the kernel reads them."""
    rows = problem.m if operand == "a" else problem.n
    k_major = majors_of(problem.layout)[operand == "b"] == "k" or needs_packing(problem, operand)
    return pitch_bytes(problem, operand) * (rows if k_major else problem.k)


class MmaSyncLauncher(PreparedLauncher):
    """The kernel, behind a packing pass where an operand needs one."""

    def __init__(self, problem: Gemm, config: Config, cubin: bytes, device: DeviceProfile, shared: Shared) -> None:
        super().__init__(problem, config, cubin, device, shared)
        derived = self._derived
        self._launch = Launch(self._module.function(ENTRY), derived["threads"], derived["shared_memory_bytes"])
        whole = derived["tiles_m"] * derived["tiles_n"] * problem.batch
        split = config.number("split_k")
        resident = config.number("blocks_per_sm") * device.sm_count
        walks = config.number("persistent") or config.number("stream_k")
        blocks = derived["sharing_blocks"] or min(whole * split, resident)
        self._launch.set_grid(blocks if walks else whole * split)
        pitches = {name: pitch_bytes(problem, name) for name in _NAMES if needs_packing(problem, name)}
        self._packing = Packing(problem, self._module, device.sm_count, shared, pitches)
        self._partials = self._semaphores = 0
        slices = whole * split if split > 1 else derived["shared_tiles"] + derived["sharing_blocks"]
        if slices:
            sums = slices * config.number("tile_m") * config.number("tile_n")
            self._partials, self._semaphores = split_workspace(shared, sums, derived["shared_tiles"] or whole)

    def prepare(self, copy: Copy) -> Passes:
        """The packing pass, where there is one, then the kernel."""
        made = self._of_every_copy.over(copy)
        for name, own in operands_of(self._config).items():
            setattr(made, name, self._packing.address(own, copy))
        maps = [boxes(getattr(made, name)) for name, boxes in self._boxes.items()]
        return *self._packing.prepare(copy), (self._launch, Arguments(*maps, made))

    @cached_property
    def _boxes(self) -> dict[OperandName, Callable[[int], TensorMap]]:
        """Tensor maps of the kernel's A and B by address, where TMA copies them."""
        if self._config["copies"] != "tma":
            return {}
        return {
            name: self._shared.maps(box_of(self._problem, self._config, name, own))
            for name, own in operands_of(self._config).items()
        }

    @cached_property
    def _of_every_copy(self) -> MmaSyncArguments:
        """The arguments without addresses: a problem of tiny operands has a hundred copies."""
        return arguments_of(self._problem, self._config, self._derived, Copy(0, 0, 0), self._partials, self._semaphores)

    def places(self, passes: Passes) -> dict[str, Place]:
        """Places of all addresses, those of packed copies among them."""
        *packing, (_, arguments) = passes
        *maps, read = arguments.values
        owns = operands_of(self._config)
        of_maps: dict[OperandName, Sequence[TensorMap]] = dict(zip(owns, ([each] for each in maps), strict=False))
        reads: dict[OperandName, Reads] = {
            own: (of_maps.get(name, ()), [word(read, name)]) for name, own in owns.items()
        }
        return epilogue_places(read) | self._packing.places(packing, reads)

    @property
    def alignment_bytes(self) -> dict[str, int]:
        """Copies of A and B are this wide; C is stored by 16 bytes, or by elements."""
        found = {name: copy_bytes(self._problem, name) for name in _NAMES if not needs_packing(self._problem, name)}
        chunks = {"c": VECTOR_BYTES} if stores_chunks(self._problem, self._config) else {}
        return dict(found) | chunks


LAUNCHER: Final = MmaSyncLauncher
