"""Predicted time of `sm90_wgmma` candidates: waves of tiles, each bound by the slowest of its resources.

Terms and rates: a multiprocessor multiplies 4,096 dense 16-bit FLOP a clock and reads 128 bytes of shared
memory a clock; what the device sustains is in `DeviceProfile`. Constants without a source were fitted to the
recordings under `recorded/h200` (`python -m benchmarks.estimate` says how well). The estimate ranks
candidates; it is never shown as a measurement.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from space.arch import LINE_BYTES, SECTOR_BYTES, WORD_BYTES
from space.clock import clock_ghz
from space.columns import BoolColumn, Columns, FloatColumn, IntColumn
from space.devices import DeviceProfile
from space.families.dependent_launch import saved_us
from space.families.element_sizes import input_bytes, output_bytes
from space.families.sm90_wgmma.derive import slice_stages, stored_row_bytes
from space.families.sm90_wgmma.knobs import EPILOGUE_DIRECT, RASTER_ALONG_M, SCHEDULE_MULTISTAGE, SCHEDULE_PINGPONG
from space.families.sm90_wgmma.operands import extent_m, extent_n, needs_packing, pitch_bytes
from space.families.sm90_wgmma.stream_k import sharing
from space.instructions import wgmma
from space.layouts.banks import BYTES_PER_CLOCK

#: What one multiprocessor gets from L2, at most.
L2_BYTES_PER_CLOCK: Final = 64
#: Time of the products as a multiple of what the tensor core's rate says.
TENSOR_SLOWDOWN: Final = 1.2
#: The same for three consumer warpgroups, and for a walk along N.
THREE_WARPGROUPS, ALONG_N = 1.06, 1.04
#: From issuing a load to its barrier, under load; a ring of S stages hides S - 1 stages of it.
LOAD_LATENCY_CLOCKS: Final = 1_250
#: Clocks a stage that nothing hides: freeing it in the other blocks of a cluster, and loading it where the thread that
#: loads also multiplies.
CLUSTER_STAGE_CLOCKS, MULTISTAGE_CLOCKS = 10, 110
#: From a block's start to its first product beyond what an empty kernel takes; a cluster meets first.
START_CLOCKS, CLUSTER_CLOCKS = 800, 400
#: Elements of C that a warpgroup converts and hands over a clock, and the share of direct stores that nothing hides.
HANDOVER_ELEMENTS, STORES_EXPOSED = 8, 0.6
#: How often memory moves C where TMA's rows end within a sector.
PART_SECTORS: Final = 2.5
#: What TMA takes for a row of a box of C: by its bytes, at least so many clocks, more where it ends in a sector.
STORED_BYTES_PER_CLOCK, ROW_CLOCKS, PART_ROW_CLOCKS = 32, 2.7, 4.2
#: Learning that all slices are there, a trip to L2 for some of their sums, and the rate at which a block brings its own
#: and fetches its share.
SPLIT_CLOCKS, TRIP_CLOCKS, SPLIT_BYTES_PER_CLOCK = 4_500, 150, 17
#: Share of it that each further wave adds: the others of a multiprocessor go on meanwhile.
SPLIT_WAVES: Final = 0.5
#: The same in a cluster along K, where nobody asks and sums go from multiprocessor to multiprocessor.
CLUSTER_K_CLOCKS, CLUSTER_K_BYTES_PER_CLOCK = 1_500, 10
#: What sharing out a last wave takes beyond its stages: what large products miss of the time that it should save.
STREAM_CLOCKS: Final = 7_500
#: A copy pass: its launch, and the rate at which it reads and writes.
PACK_US, PACK_TBS = 2.5, 2.6
#: Registers of a thread beside its accumulators, and what adding up slices takes more: as the compiler has it.
BESIDE_REGISTERS, SPLIT_REGISTERS = 48, 48


def estimate_us(c: Columns, device: DeviceProfile) -> FloatColumn:
    """Microseconds of one launch with cold L2, one row a candidate.

    What does not depend on the device is kept with the columns: which rate bounds a candidate is asked by raising one
    rate after the other.
    """
    clock = clock_ghz(c.problem, device)
    clocks_per_us = clock * 1e3
    tiles = c["tiles_m"] * c["tiles_n"] * c["split_k"] * c.problem.batch
    together = c.once(_blocks_together)
    clusters = device.cluster_slots(c["cluster_size"])
    slots = clusters * together
    waves = -(-tiles // slots)
    full_waves = _full_waves(c, tiles, slots, waves)
    busy = np.minimum(np.minimum(tiles, slots) * c["cluster_size"], device.sm_count).astype(np.float64)
    crowd = np.minimum(together, np.maximum(tiles * c["cluster_size"] / device.sm_count, 1))
    mainloop = slice_stages(c) * _stage_clocks(c, device.l2_tbs * 1e3 / clock, busy, crowd)
    epilogue = _epilogue_clocks(c, busy, device.hbm_tbs * 1e3 / clock)
    hidden = np.where(c["schedule"] == SCHEDULE_PINGPONG, np.minimum(epilogue, mainloop), 0)
    store = c.once(_store_clocks)
    walk = full_waves * np.maximum(mainloop + epilogue - hidden, store) + hidden + store
    start = START_CLOCKS + np.where(_multicasts(c), CLUSTER_CLOCKS, 0)
    sm_us = (start + walk) / clocks_per_us
    hbm_us = c.problem.min_bytes * c.once(_reread) / device.hbm_tbs / 1e6 + start / clocks_per_us
    # Neither hides behind the other wholly.
    both = _eighth_norm(sm_us, hbm_us)
    ordered = np.where((c["raster"] == RASTER_ALONG_M) | (waves <= 1), both, both * ALONG_N)
    held = tiles / (clusters * c.once(_resident))
    early = np.where(c["pdl"] == 1, saved_us(held, ordered), 0.0)
    # Slices meet when all else is done.
    split_us = (c.once(_split_clocks) + c.once(_cluster_k_clocks)) * (1 + SPLIT_WAVES * (waves - 1)) / clocks_per_us
    split_us += np.where(full_waves < waves, STREAM_CLOCKS, 0) / clocks_per_us
    total: FloatColumn = ordered + split_us + device.launch_us - early + _pack_us(c)
    return total


def _full_waves(c: Columns, tiles: IntColumn, slots: IntColumn, waves: IntColumn) -> FloatColumn:
    """Waves, where a last one that is shared out counts as much as each cluster has to do of it."""
    shared = sharing(tiles, slots, c["k_iterations"])
    of_last = shared.kept / c["k_iterations"]
    return np.where((c["stream_k"] == 1) & (shared.owners > 0), waves - 1 + of_last, waves)


def _eighth_norm(one: FloatColumn, other: FloatColumn) -> FloatColumn:
    """(one^8 + other^8)^(1/8), without the slow power of an array."""
    for _ in range(3):
        one, other = one * one, other * other
    root: FloatColumn = np.sqrt(np.sqrt(np.sqrt(one + other)))
    return root


def _blocks_together(c: Columns) -> IntColumn:
    """Blocks that work side by side on a multiprocessor: those that fit, unless they are wide or wait for others."""
    alone = (c["producer_registers"] > 0) | _multicasts(c)
    return np.where(alone, 1, c.once(_resident))


def _resident(c: Columns) -> IntColumn:
    """Blocks that a multiprocessor holds: as many as shared memory and registers allow."""
    by_smem = c.arch.smem_per_sm_bytes // (c["shared_memory_bytes"] + c.arch.smem_reserved_bytes)
    beside = BESIDE_REGISTERS + SPLIT_REGISTERS * (c["split_k"] > 1)
    registers = np.minimum(c["accumulator_registers"] + beside, c.arch.registers_per_thread)
    by_registers = c.arch.registers_per_block // (c["threads"] * registers)
    blocks: IntColumn = np.maximum(np.minimum(by_smem, by_registers), 1)
    return blocks


def _stage_clocks(c: Columns, l2_bytes_per_clock: float, busy: FloatColumn, crowd: FloatColumn) -> FloatColumn:
    inside, from_l2, latency, unhidden, slower = c.once(_stage_parts)
    l2 = from_l2 * np.maximum(busy / l2_bytes_per_clock, 1 / L2_BYTES_PER_CLOCK)
    clocks: FloatColumn = (np.hypot(crowd * np.maximum(inside, l2), latency) + unhidden) * slower
    return clocks


def _stage_parts(c: Columns) -> tuple[FloatColumn, ...]:
    """Clocks that a stage takes inside the multiprocessor, its bytes from L2, its latency, what nothing hides, and by
    how much all of it is slower."""
    tile_m, tile_n, tile_k = (c[name].astype(np.float64) for name in ("tile_m", "tile_n", "tile_k"))
    bytes_k = tile_k * input_bytes(c.problem)
    tensor = tile_m * tile_n * bytes_k / 4096 * TENSOR_SLOWDOWN
    loaded = (tile_m + tile_n) * bytes_k
    read = (tile_m + tile_n * tile_m / wgmma.M) * bytes_k
    smem = (read + loaded) / BYTES_PER_CLOCK
    lines_a, lines_b = _lines_touched(c)
    from_l2 = (tile_m * lines_a / c["cluster_n"] + tile_n * lines_b / c["cluster_m"]) * bytes_k
    latency = LOAD_LATENCY_CLOCKS / (c["stages"] - 1)
    unhidden = CLUSTER_STAGE_CLOCKS * _multicasts(c) + MULTISTAGE_CLOCKS * (
        c["schedule"] == SCHEDULE_MULTISTAGE
    )
    slower = np.where(c["consumer_warpgroups"] == 3, THREE_WARPGROUPS, 1)
    return np.maximum(tensor, smem), from_l2, latency, unhidden, slower


def _lines_touched(c: Columns) -> tuple[FloatColumn, FloatColumn]:
    """How many L2 lines a 128-byte row of the kernel's A and B touches."""
    a, b = (2.0 if pitch_bytes(c.problem, operand) % LINE_BYTES else 1.0 for operand in ("a", "b"))
    swapped = c["swap_ab"] == 1
    return np.where(swapped, b, a), np.where(swapped, a, b)


def _epilogue_clocks(c: Columns, busy: FloatColumn, hbm_bytes_per_clock: float) -> FloatColumn:
    """Converting and handing over C; a TMA store itself runs beside the next tile."""
    elements = (c["tile_m"] * c["tile_n"]).astype(np.float64) / c["cluster_k"]
    written = elements * output_bytes(c.problem) * busy / hbm_bytes_per_clock
    handover = elements / (HANDOVER_ELEMENTS * c["team"])
    return np.where(c["epilogue"] == EPILOGUE_DIRECT, handover + STORES_EXPOSED * written, handover)


def _store_clocks(c: Columns) -> FloatColumn:
    """TMA writes C a row of a box at a time, beside the next tile: boxes are as wide as the tile can be cut."""
    row_bytes = stored_row_bytes(c)
    elements = (c["tile_m"] * c["tile_n"]).astype(np.float64)
    rows = elements * output_bytes(c.problem) / row_bytes
    least = np.where(row_bytes % SECTOR_BYTES > 0, PART_ROW_CLOCKS, ROW_CLOCKS)
    clocks = np.maximum(row_bytes / STORED_BYTES_PER_CLOCK, least)
    return np.where(c["epilogue"] == EPILOGUE_DIRECT, 0.0, rows * clocks)


def _split_clocks(c: Columns) -> FloatColumn:
    """A slice brings a tile's sums, and fetches as much: one share of it from every slice."""
    sums = (c["tile_m"] * c["tile_n"] * WORD_BYTES).astype(np.float64)
    clocks = SPLIT_CLOCKS + TRIP_CLOCKS * split_trips(c) + 2 * sums / SPLIT_BYTES_PER_CLOCK
    return np.where(c["split_k"] > 1, clocks, 0.0)


def _cluster_k_clocks(c: Columns) -> FloatColumn:
    """A block sends its sums to the others of its cluster, and adds up what they send."""
    sums = (c["tile_m"] * c["tile_n"] * WORD_BYTES).astype(np.float64)
    moved = 2 * sums * (c["cluster_k"] - 1) / c["cluster_k"]
    return np.where(c["cluster_k"] > 1, CLUSTER_K_CLOCKS + moved / CLUSTER_K_BYTES_PER_CLOCK, 0.0)


def _multicasts(c: Columns) -> BoolColumn:
    """Whether blocks of a cluster load for one another."""
    column: BoolColumn = c["cluster_m"] * c["cluster_n"] > 1
    return column


def split_trips(c: Columns) -> IntColumn:
    """Trips to L2 of a warpgroup that adds up its share: unit by unit, and of each some slices at a time.

    `Partials` in workers/kernels/common/partials.cuh says how many column groups make a unit, and how many slices it
    requests together.
    """
    groups = c["tile_n"] // wgmma.N_STEP
    single = (c["swap_ab"] == 1) | (groups % 2 == 1)
    unit = np.where(single, 1, np.where(groups % 4 > 0, 2, 4))
    ahead = np.where(single, 16, np.where(groups % 4 > 0, 4, 2))
    units = groups // unit * (c["tile_m"] // (wgmma.M * c["team"]))
    trips: IntColumn = -(-units // c["split_k"]) * -(-c["split_k"] // ahead)
    return trips


def _pack_us(c: Columns) -> float:
    p = c.problem
    size = p.k * p.batch * input_bytes(p)
    moved = sum(2 * rows * size for name, rows in (("a", p.m), ("b", p.n)) if needs_packing(p, name))
    return moved / PACK_TBS / 1e6 + PACK_US if moved else 0.0


def _operands_moved(c: Columns) -> FloatColumn:
    """Bytes of A and B that come from memory: more than they have where a wave's operands overflow half of L2."""
    group = c["raster_group"].astype(np.float64)
    along_m = c["raster"] == RASTER_ALONG_M
    rows = np.where(along_m, np.minimum(group, c["tiles_m"]), c["tiles_m"])
    cols = np.where(along_m, c["tiles_n"], np.minimum(group, c["tiles_n"]))
    # Tiles in flight form a block of `wide` x `tall` cluster tiles; squarer blocks share more.
    in_flight = np.maximum(c.device.sm_count // c["cluster_size"], 1)
    wide = np.minimum(np.where(along_m, rows, cols), in_flight)
    tall = np.maximum(in_flight / wide, 1)
    m_side = np.where(along_m, wide, tall) * c["tile_m"] * c["cluster_m"]
    n_side = np.where(along_m, tall, wide) * c["tile_n"] * c["cluster_n"]
    m, n = extent_m(c), extent_n(c)
    m_passes = np.maximum(n / np.maximum(n_side, 1), 1)
    n_passes = np.maximum(m / np.maximum(m_side, 1), 1)
    size = input_bytes(c.problem) * c.problem.k * c.problem.batch
    a_bytes, b_bytes = m * size, n * size
    l2_bytes = c.device.l2_bytes // 2
    a_moved = np.where(a_bytes > l2_bytes, a_bytes * m_passes, a_bytes)
    b_moved = np.where(b_bytes > l2_bytes, b_bytes * n_passes, b_bytes)
    moved: FloatColumn = a_moved + b_moved
    return moved


def _reread(c: Columns) -> FloatColumn:
    """How often memory's bytes are moved: operands that come again, and C that goes in parts of sectors."""
    parts = (c["epilogue"] != EPILOGUE_DIRECT) & (stored_row_bytes(c) % SECTOR_BYTES > 0)
    c_bytes = c.problem.m * c.problem.n * c.problem.batch * output_bytes(c.problem)
    written = c_bytes * np.where(parts, PART_SECTORS, 1)
    moved: FloatColumn = (_operands_moved(c) + written) / c.problem.min_bytes
    return np.maximum(moved, 1)
