"""What families share: extents, element sizes, stores of C, split-K, raster groups, programmatic dependent launch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from space.arch import VECTOR_BYTES
from space.columns import BoolColumn, Columns, FloatColumn, IntColumn
from space.config import Config
from space.kinds.gemm import ACTIVATIONS, Gemm
from space.knobs import Knob, KnobValue
from space.problem import DTYPE_BYTES, Problem
from space.rules import MakeWorth, Rule

#: One semaphore per part of a tile: `Semaphore` in workers/kernels/common/semaphore.cuh.
SEMAPHORE_BYTES: Final = 16
#: Most that partial sums may take; cuBLASLt gets a workspace of the same size.
WORKSPACE_BYTES: Final = 64 * 2**20
#: Mean product of two uniform bytes: 127.5².
MEAN_UNSIGNED_PRODUCT: Final = 16_256
#: Sums of so many of them, which deviate by 14,401 each, are eight deviations below 2^31, where 32 bits wrap around.
MOST_UNSIGNED_K: Final = 129_024
#: A block moves on by as many tiles as there are blocks, which may be one per tile: a signed int holds the sum.
MAX_TILES: Final = 2**30
#: Rows and columns of C: up to 1,024 more, a cluster of four tiles of 256, are numbered in a signed int.
MAX_TILED_EXTENT: Final = 2**31 - 2048
#: What a count that does not fit 64 bits is taken for: that of a problem that fits no GPU.
BEYOND_COUNTING: Final = 2**62
#: The packing pass counts the bytes of a row in 32 bits.
MAX_PACKED_ROW_BYTES: Final = 2**31 - 1
#: Limits of a short product, for programmatic dependent launch: about 30 us of memory traffic and 400 us of 16-bit
#: arithmetic on a Hopper GPU.
SHORT_BYTES, SHORT_FLOPS = 128_000_000, 256_000_000_000
#: Microseconds that setting up during the end of the previous kernel saves.
PDL_SAVES_US: Final = 0.5
#: Cost as a share of the kernel's time if a launch fills just over half of the device: blocks that find no room beside
#: the previous kernel crowd where its first blocks end. The cost falls to nothing at the second number. Of the recorded
#: pairs that differ only in this knob, 1,118 of smaller launches gain 0.5 us; 813 that fill between half and three
#: quarters of the device lose 1.0 us (medians), at most two fifths of their time.
CROWDED, CROWDED_UNTIL = 0.3, 0.75
PDL_SENTENCE: Final = "programmatic dependent launch belongs to the context: candidates are timed without it"
PDL_WHY: Final = (
    "it hides up to 1 us of setup behind a kernel that allows it, as every copy of the kernel itself does, and costs "
    "0.1 to 0.5 us behind any other; the best are timed with it among kernels that allow it"
)


def input_bytes(problem: Gemm) -> int:
    """Bytes of one element of A, and of B: no product mixes widths."""
    return DTYPE_BYTES[problem.dtype_a]


def output_bytes(problem: Gemm) -> int:
    """Bytes of one element of C."""
    return DTYPE_BYTES[problem.dtype_c]


def counted(*factors: IntColumn | int) -> IntColumn:
    """The product of whole numbers, exact up to 2^53 and at most `BEYOND_COUNTING`."""
    product: FloatColumn = np.ones(())
    for factor in factors:
        product = product * factor
    return np.minimum(product, BEYOND_COUNTING).astype(np.int64)


def extent_m(c: Columns) -> IntColumn:
    """The kernel's M."""
    problem: Gemm = c.problem
    return np.where(c["swap_ab"] == 1, problem.n, problem.m)


def extent_n(c: Columns) -> IntColumn:
    """The kernel's N."""
    problem: Gemm = c.problem
    return np.where(c["swap_ab"] == 1, problem.m, problem.n)


def rows_anywhere(problem: Gemm) -> bool:
    """Whether rows of a 16-bit C may start at addresses that are misaligned for a thread's widest store."""
    size = output_bytes(problem)
    return size == 2 and problem.n * size % VECTOR_BYTES != 0


def rows_of_chunks(problem: Gemm) -> bool:
    """Whether rows of C that are stored as they lie are stored `VECTOR_BYTES` at a time."""
    return output_bytes(problem) == 2 and not rows_anywhere(problem)


def stores_chunks(problem: Gemm, config: Config) -> bool:
    """Whether direct stores write `VECTOR_BYTES` of a row at a time, so that C must start at a multiple of them."""
    return not config["swap_ab"] and rows_of_chunks(problem)


def epilogue_constants(problem: Gemm) -> dict[str, KnobValue]:
    """0 or 1 for each of alpha, beta and bias, and the name of the activation or `none`.

    `scaled_rowwise` is among them only where operands have scales, so that it changes no other program.
    """
    parts = problem.epilogue_parts
    flags = {part: int(part in parts) for part in ("alpha", "beta", "bias")}
    scaled = {"scaled_rowwise": int(problem.scales == "scaled_rowwise")} if problem.scales else {}
    return flags | {"activation": next((part for part in ACTIVATIONS if part in parts), "none")} | scaled


def target_rule(kernel: str, targets: frozenset[str]) -> Rule:
    """The legal rule of kernels that would compile for further targets, for which nobody has tested them.

    Args:
        kernel: folder of the kernel.
    """
    return Rule(
        "arch.target", "the kernel is built for the target", kernel, (), lambda c: c.arch.name in targets,
        lambda c: f"{c.arch.name}; it is built for {', '.join(sorted(targets))}",
    )  # fmt: skip


def host_scales_rule(kernel: str) -> Rule:
    """The legal rule of kernels whose epilogue takes its factor from the host.

    Args:
        kernel: folder of the kernel.
    """
    return Rule(
        "epilogue.scales", "A and B have no scales on the device", f"{kernel}: alpha is an argument of the launch", (),
        lambda c: not c.problem.scales,
        lambda c: f"epilogue {c.problem.epilogue}; "
                  + ("sm90_wgmma reads scales" if "wgmma" in c.arch.features
                     else f"no kernel for {c.arch.name} reads scales: use alpha"),
    )  # fmt: skip


def workspace_rule(kernel: str) -> Rule:
    """The legal rule that bounds the memory of split-K's partial sums.

    Args:
        kernel: folder of the kernel.
    """
    return Rule(
        "split.workspace", "partial sums fit the workspace", f"{kernel}: 64 MiB, as much as cuBLASLt is given",
        ("workspace_bytes",), lambda c: c["workspace_bytes"] <= WORKSPACE_BYTES,
        lambda c: f"{c.first('workspace_bytes'):,} B > {WORKSPACE_BYTES:,} B",
    )  # fmt: skip


def slices_rule(kernel: str) -> Rule:
    """The legal rule that leaves every slice of split-K a stage, for kernels that walk K in stages.

    Args:
        kernel: folder of the kernel.
    """
    return Rule(
        "split.k", "every slice of K has at least one stage", kernel, ("split_k", "k_iterations"),
        lambda c: c["split_k"] <= c["k_iterations"],
        lambda c: f"split_k {c.first('split_k')} > {c.first('k_iterations')} stages in K",
    )  # fmt: skip


def grid_rule(kernel: str, *counts: str) -> Rule:
    """The legal rule that bounds the number of tiles.

    Args:
        kernel: folder of the kernel.
        counts: columns whose product is the number of tiles of one product of the batch, each slice of K counted.
    """

    def holds(c: Columns) -> BoolColumn:
        # In floats: the tiles of problems that fit no GPU don't fit 64 bits either.
        tiles: FloatColumn = np.asarray(float(c.problem.batch))
        for name in counts:
            tiles = tiles * c[name]
        return np.asarray(tiles <= MAX_TILES)

    def numbers(c: Columns) -> str:
        tiles = math.prod(map(c.first, counts)) * c.problem.batch
        return f"{tiles:,} tiles, each slice of K counted, > {MAX_TILES:,}"

    return Rule("grid.tiles", "a block counts tiles past its last in 32 bits", kernel, counts, holds, numbers)


def edge_rule(kernel: str) -> Rule:
    """The legal rule that keeps rows and columns of the last tile, which lie beyond C, from becoming negative.

    Args:
        kernel: folder of the kernel.
    """
    return Rule(
        "grid.edge", "rows and columns of the last tile, also those beyond C, are numbered in 32 bits", kernel, (),
        lambda c: max(c.problem.m, c.problem.n) <= MAX_TILED_EXTENT,
        lambda c: f"{max(c.problem.m, c.problem.n):,} rows or columns > {MAX_TILED_EXTENT:,}: multiply parts of C",
    )  # fmt: skip


def sums_range_rule() -> Rule:
    """The legal rule that leaves verification something to compare: a sum that wraps around is right nowhere, and a C
    at the end of its range tells nothing."""
    return Rule(
        "sums.range", f"sums of unsigned products have K of at most {MOST_UNSIGNED_K:,}, and need alpha, or a C that "
        "holds them: s32, f32 or bf16",
        f"uint8 · uint8 is {MEAN_UNSIGNED_PRODUCT:,} on average: sums wrap around at 2^31, f16 holds that of four", (),
        lambda c: not (_wraps(c.problem) or _clips(c.problem)),
        lambda c: f"K = {c.problem.k:,} > {MOST_UNSIGNED_K:,}: add up slices of K" if _wraps(c.problem) else
                  f"C is {c.problem.dtype_c} and would be at the end of its range everywhere; add alpha, or use s32",
    )  # fmt: skip


def _wraps(problem: Gemm) -> bool:
    return _unsigned(problem) and problem.k > MOST_UNSIGNED_K


def _clips(problem: Gemm) -> bool:
    held = problem.dtype_c in ("s32", "f32", "bf16")
    return _unsigned(problem) and not held and "alpha" not in problem.epilogue_parts


def _unsigned(problem: Gemm) -> bool:
    return problem.dtype_a == problem.dtype_b == "uint8"


def packed_rows_rule(needs_packing: Callable[[Gemm, str], bool], pitch_bytes: Callable[[Gemm, str], int]) -> Rule:
    """The legal rule that keeps the packing pass from writing beyond the packed copy.

    Args:
        needs_packing, pitch_bytes: of a problem's `a` or `b`.
    """

    def longest(c: Columns) -> int:
        return max((pitch_bytes(c.problem, each) for each in "ab" if needs_packing(c.problem, each)), default=0)

    return Rule("pack.pitch", f"rows of a packed operand take at most {MAX_PACKED_ROW_BYTES:,} bytes",
                "workers/kernels/common/pack.cuh", (), lambda c: longest(c) <= MAX_PACKED_ROW_BYTES,
                lambda c: f"rows of {longest(c):,} B: multiply slices of K, or use another layout")  # fmt: skip


def group_width(across: IntColumn, raster_group: IntColumn) -> IntColumn:
    """Tiles across each raster group; the last group may be narrower.

    Groups of one width share the grid; their number is `across / raster_group`, rounded. So they are less than half as
    wide again as `raster_group`, and three quarters of it or more where there are several.

    Args:
        across: cluster tiles across the whole grid.
    """
    groups = np.maximum((2 * across + raster_group) // (2 * raster_group), 1)
    column: IntColumn = -(-across // groups)
    return column


def raster_group_rule(worth: MakeWorth, along_m: int, knobs: Sequence[Knob]) -> Rule:
    """The worth rule that removes raster groups where a narrower one covers the grid: they give one order of tiles.

    Args:
        along_m: code of the raster along M.
        knobs: of the family; `raster_group` is among them.
    """
    groups = np.array(next(knob for knob in knobs if knob.name == "raster_group").domain)

    def holds(c: Columns) -> BoolColumn:
        across = np.where(c["raster"] == along_m, c["tiles_m"], c["tiles_n"])
        smallest_covering = groups[np.minimum(np.searchsorted(groups, across), len(groups) - 1)]
        column: BoolColumn = c["raster_group"] <= smallest_covering
        return column

    return worth("worth.raster_group", "a raster group is no wider than the narrowest that covers the grid of tiles",
                 "a wider group gives the same order", ("raster", "raster_group", "tiles_m", "tiles_n"),
                 holds)  # fmt: skip


def is_short(problem: Problem) -> bool:
    """Whether half a microsecond is a measurable share of a product's time."""
    return problem.min_bytes <= SHORT_BYTES and problem.flops <= SHORT_FLOPS


def starts_early(config: Config) -> bool:
    """Whether a config uses programmatic dependent launch: it is timed only among kernels that allow it."""
    return bool(config.knobs.get("pdl", 0))


def plain_twin(config: Config) -> Config:
    """The config without programmatic dependent launch, for kernels around it that trigger nothing early."""
    return config.changed({"pdl": 0, "prefetch_stages": 0}) if starts_early(config) else config


def marks_weights(config: Config) -> bool:
    """Whether tiles mark the weights that they load, so that L2 keeps older ones (docs/kernels/memory.md)."""
    return str(config.knobs.get("cache_hint", "")).startswith("stream_")


def unmarked(config: Config) -> Config:
    """The config without marks on weights, as candidates are today: these gained only among copies."""
    return config.changed({"cache_hint": "none"}) if marks_weights(config) else config


def bare_twin(config: Config) -> Config:
    """The plain twin without marks on weights."""
    return unmarked(plain_twin(config))


def early_twin(problem: Problem, config: Config) -> Config | None:
    """The config with programmatic dependent launch, for kernels around it that allow it.

    None where the family has no such knob, or where half a microsecond is no measurable share of the time.
    """
    if "pdl" not in config.knobs or not is_short(problem):
        return None
    return config.changed({"pdl": 1})


def pdl_saved_us(held: FloatColumn, kernel_us: FloatColumn) -> FloatColumn:
    """Microseconds that dependent launch saves a kernel behind a copy of itself; negative if it costs time.

    Args:
        held: blocks of one launch, as a share of the blocks that the device holds at once.
        kernel_us: time of one launch.
    """
    crowded = np.where(held > 0.5, np.maximum((CROWDED_UNTIL - held) / (CROWDED_UNTIL - 0.5), 0), 0)
    return PDL_SAVES_US - CROWDED * crowded * kernel_us


def eighth_norm(one: FloatColumn, other: FloatColumn) -> FloatColumn:
    """(one^8 + other^8)^(1/8), without the slow power of an array: neither time hides fully behind the other."""
    for _ in range(3):
        one, other = one * one, other * other
    return np.sqrt(np.sqrt(np.sqrt(one + other)))
