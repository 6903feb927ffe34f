"""Time estimate of `sm90_wgmma`: waves of tiles, each bound by its slowest resource.

A multiprocessor reads 128 bytes of shared memory per clock; `DeviceProfile` has the rates that a device sustains.
Constants without a source were fitted to the recordings under `recorded/h200`; `python -m benchmarks.estimate` prints
how well. The estimate ranks candidates and is never shown as a measurement.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from space.arch import LINE_BYTES, SECTOR_BYTES, WORD_BYTES
from space.clock import clock_ghz
from space.columns import BoolColumn, Columns, FloatColumn, IntColumn
from space.devices import DeviceProfile
from space.families.common import eighth_norm, extent_m, extent_n, group_width, input_bytes, output_bytes, pdl_saved_us
from space.families.sm90_wgmma.derive import slice_stages, stored_row_bytes, streams_large_rows
from space.families.sm90_wgmma.knobs import EPILOGUE_DIRECT, RASTER_ALONG_M, SCHEDULE_MULTISTAGE, SCHEDULE_PINGPONG
from space.families.sm90_wgmma.operands import mn_major_a, mn_major_b, needs_packing, pitch_bytes
from space.families.sm90_wgmma.stream_k import sharing
from space.instructions import wgmma
from space.layouts.banks import BYTES_PER_CLOCK

#: Most bytes that one multiprocessor reads from L2 per clock.
L2_BYTES_PER_CLOCK: Final = 64
#: Time of the products, as a multiple of the time at the tensor core's peak rate.
TENSOR_SLOWDOWN: Final = 1.2
#: Factors of time for three consumer warpgroups, and for rasters along N.
THREE_WARPGROUPS, ALONG_N = 1.06, 1.04
#: Latency from issuing a load to its barrier, under load; a ring of S stages hides it behind S - 1 of them.
LOAD_LATENCY_CLOCKS: Final = 1_250
#: Clocks per stage that nothing hides: to free it in the other blocks of a cluster, and to issue its loads without a
#: producer.
CLUSTER_STAGE_CLOCKS, MULTISTAGE_CLOCKS = 10, 110
#: From a block's start to its first product, beyond what an empty kernel takes, and the first barrier of a cluster.
START_CLOCKS, CLUSTER_CLOCKS = 800, 400
#: Elements of C that a warpgroup converts and hands over per clock, and the share of direct stores that nothing hides.
HANDOVER_ELEMENTS, STORES_EXPOSED = 8, 0.6
#: The same of what a transposed C takes beyond that: it is stored by pairs, so that four lanes fill half a sector.
TRANSPOSED_ELEMENTS, TRANSPOSED_EXPOSED = 8 / 3, 0.9
#: How often memory moves C if TMA's rows end within a sector.
PART_SECTORS: Final = 2.5
#: TMA stores a row of a box of C at this rate, in no fewer clocks than these, or than the last if it ends within a
#: sector.
STORED_BYTES_PER_CLOCK, ROW_CLOCKS, PART_ROW_CLOCKS = 32, 2.7, 4.2
#: Split-K: clocks until all slices have arrived, of one trip to L2 for some of their sums, and the rate at which a
#: block stores its own sums and loads its share.
SPLIT_CLOCKS, TRIP_CLOCKS, SPLIT_BYTES_PER_CLOCK = 4_500, 150, 17
#: Share of the above that each further wave adds; other blocks of the multiprocessor go on meanwhile.
SPLIT_WAVES: Final = 0.5
#: The same in a cluster along K, which sends sums between multiprocessors and polls nothing.
CLUSTER_K_CLOCKS, CLUSTER_K_BYTES_PER_CLOCK = 1_500, 10
#: Memory's time for large weights where clusters of four or eight along K read whole rows: 0.96 to 1.0 on H100s.
WHOLE_ROWS: Final = 0.98
#: Stream-K: clocks of a shared last wave beyond those of its stages, fitted to large products.
STREAM_CLOCKS: Final = 7_500
#: The pass that packs operands: its launch, and the rate at which it reads and writes.
PACK_US, PACK_TBS = 2.5, 2.6
#: Registers of a thread beside its accumulators, and those that summing slices adds, as compiled.
BESIDE_REGISTERS, SPLIT_REGISTERS = 48, 48


def estimate_us(c: Columns, device: DeviceProfile) -> FloatColumn:
    """Microseconds of one launch with a cold L2, one row per candidate.

    Terms that do not depend on the device are cached with the columns: a caller that raises one rate after another, to
    see which one bounds a candidate, pays for them once.
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
    moved = c.problem.min_bytes * c.once(_reread) * np.where(c.once(_reads_whole_rows), WHOLE_ROWS, 1)
    hbm_us = moved / device.hbm_tbs / 1e6 + start / clocks_per_us
    # Neither hides fully behind the other.
    both = eighth_norm(sm_us, hbm_us)
    ordered = np.where((c["raster"] == RASTER_ALONG_M) | (waves <= 1), both, both * ALONG_N)
    held = tiles / (clusters * c.once(_resident))
    early = np.where(c["pdl"] == 1, pdl_saved_us(held, ordered), 0.0)
    # Slices are summed after everything else, but while others wait for memory where clusters stream large weights.
    behind = SPLIT_WAVES * (waves - 1) * np.where(c.once(_reads_whole_rows), 0, 1)
    split_us = (c.once(_split_clocks) + c.once(_cluster_k_clocks)) * (1 + behind) / clocks_per_us
    split_us += np.where(full_waves < waves, STREAM_CLOCKS, 0) / clocks_per_us
    total: FloatColumn = ordered + split_us + device.launch_us - early + _pack_us(c)
    return total


def _full_waves(c: Columns, tiles: IntColumn, slots: IntColumn, waves: IntColumn) -> FloatColumn:
    """Waves; a shared last wave counts as the fraction of a tile that each cluster multiplies."""
    shared = sharing(tiles, slots, c["k_iterations"])
    of_last = shared.kept / c["k_iterations"]
    return np.where((c["stream_k"] == 1) & (shared.owners > 0), waves - 1 + of_last, waves)


def _blocks_together(c: Columns) -> IntColumn:
    """Blocks that run side by side on a multiprocessor: one with setmaxnreg or multicast, else as many as fit."""
    alone = (c["producer_registers"] > 0) | _multicasts(c)
    return np.where(alone, 1, c.once(_resident))


def _resident(c: Columns) -> IntColumn:
    """Blocks that the shared memory and registers of a multiprocessor hold."""
    by_smem = c.arch.smem_per_sm_bytes // (c["shared_memory_bytes"] + c.arch.smem_reserved_bytes)
    beside = BESIDE_REGISTERS + SPLIT_REGISTERS * (c["split_k"] > 1)
    registers = np.minimum(c["accumulator_registers"] + beside, c.arch.registers_per_thread)
    by_registers = c.arch.registers_per_block // (c["threads"] * registers)
    return np.maximum(np.minimum(by_smem, by_registers), 1)


def _stage_clocks(c: Columns, l2_bytes_per_clock: float, busy: FloatColumn, crowd: FloatColumn) -> FloatColumn:
    inside, from_l2, padding, latency, unhidden, slower = c.once(_stage_parts)
    l2 = from_l2 * np.maximum(busy / l2_bytes_per_clock, padding / L2_BYTES_PER_CLOCK)
    return (np.hypot(crowd * np.maximum(inside, l2), latency) + unhidden) * slower


def _stage_parts(c: Columns) -> tuple[FloatColumn, ...]:
    """Clocks of a stage inside the multiprocessor, bytes from L2, the factor by which TMA writes more of them than the
    tiles hold, clocks of latency, clocks that nothing hides, and the factor by which all of it is slower."""
    tile_m, tile_n, tile_k = (c[name].astype(np.float64) for name in ("tile_m", "tile_n", "tile_k"))
    bytes_k = tile_k * input_bytes(c.problem)
    tensor = tile_m * tile_n * bytes_k / c.device.tensor_flops_per_clock * TENSOR_SLOWDOWN
    loaded = (tile_m + tile_n) * bytes_k
    read = (tile_m + tile_n * tile_m / wgmma.M) * bytes_k
    smem = (read + loaded) / BYTES_PER_CLOCK
    lines_a, lines_b = _lines_touched(c)
    from_l2 = (tile_m * lines_a / c["cluster_n"] + tile_n * lines_b / c["cluster_m"]) * bytes_k
    padding = c["stage_bytes"] / loaded
    latency = LOAD_LATENCY_CLOCKS / (c["stages"] - 1)
    unhidden = CLUSTER_STAGE_CLOCKS * _multicasts(c) + MULTISTAGE_CLOCKS * (c["schedule"] == SCHEDULE_MULTISTAGE)
    slower = np.where(c["consumer_warpgroups"] == 3, THREE_WARPGROUPS, 1)
    return np.maximum(tensor, smem), from_l2, padding, latency, unhidden, slower


def _lines_touched(c: Columns) -> tuple[FloatColumn, FloatColumn]:
    """L2 lines that a 128-byte row of the kernel's A and of its B touches, on average.

    Rows start at multiples of the pitch, and those of an MN-major operand at multiples of the tile's width as well: in
    one of g / 128 cases at a line, if these have the greatest common divisor g.
    """
    size = input_bytes(c.problem)
    a, b = (pitch_bytes(c.problem, operand) for operand in ("a", "b"))
    swapped = c["swap_ab"] == 1
    steps = (
        (np.where(swapped, b, a), mn_major_a(c), c["tile_m"]),
        (np.where(swapped, a, b), mn_major_b(c), c["tile_n"]),
    )
    touched_a, touched_b = (
        2 - np.gcd(np.gcd(pitch, LINE_BYTES), np.where(mn_major, tile * size, LINE_BYTES)) / LINE_BYTES
        for pitch, mn_major, tile in steps
    )
    return touched_a, touched_b


def _epilogue_clocks(c: Columns, busy: FloatColumn, hbm_bytes_per_clock: float) -> FloatColumn:
    """Clocks to convert and hand over C; a TMA store itself overlaps the next tile."""
    elements = (c["tile_m"] * c["tile_n"]).astype(np.float64) / c["cluster_k"]
    written = elements * output_bytes(c.problem) * busy / hbm_bytes_per_clock
    handover = elements / (HANDOVER_ELEMENTS * c["team"])
    # Of a slice of K, each block stores a share of the tile.
    transposed = (elements / (TRANSPOSED_ELEMENTS * c["team"]) + TRANSPOSED_EXPOSED * written) / c["split_k"]
    direct = handover + STORES_EXPOSED * written + np.where(c["swap_ab"] == 1, transposed, 0)
    return np.where(c["epilogue"] == EPILOGUE_DIRECT, direct, handover)


def _store_clocks(c: Columns) -> FloatColumn:
    """Clocks in which TMA writes a tile of C, one row of a box at a time, while the next tile is multiplied."""
    row_bytes = stored_row_bytes(c)
    elements = (c["tile_m"] * c["tile_n"]).astype(np.float64)
    rows = elements * output_bytes(c.problem) / row_bytes
    least = np.where(row_bytes % SECTOR_BYTES > 0, PART_ROW_CLOCKS, ROW_CLOCKS)
    clocks = np.maximum(row_bytes / STORED_BYTES_PER_CLOCK, least)
    return np.where(c["epilogue"] == EPILOGUE_DIRECT, 0.0, rows * clocks)


def _split_clocks(c: Columns) -> FloatColumn:
    """Clocks of split-K: a block stores the sums of a tile and loads as many, its share from every slice."""
    sums = (c["tile_m"] * c["tile_n"] * WORD_BYTES).astype(np.float64)
    clocks = SPLIT_CLOCKS + TRIP_CLOCKS * split_trips(c) + 2 * sums / SPLIT_BYTES_PER_CLOCK
    return np.where(c["split_k"] > 1, clocks, 0.0)


def _cluster_k_clocks(c: Columns) -> FloatColumn:
    """Clocks in which a block of a cluster along K sends sums to the others and adds those that it receives."""
    sums = (c["tile_m"] * c["tile_n"] * WORD_BYTES).astype(np.float64)
    moved = 2 * sums * (c["cluster_k"] - 1) / c["cluster_k"]
    return np.where(c["cluster_k"] > 1, CLUSTER_K_CLOCKS + moved / CLUSTER_K_BYTES_PER_CLOCK, 0.0)


def _reads_whole_rows(c: Columns) -> BoolColumn:
    """Whether a cluster along K streams large weights, of which each of its blocks reads a part of the same rows."""
    return np.bool_(streams_large_rows(c.problem)) & (c["cluster_k"] >= 4)


def _multicasts(c: Columns) -> BoolColumn:
    """Whether blocks of a cluster load operands for one another."""
    return c["cluster_m"] * c["cluster_n"] > 1


def split_trips(c: Columns) -> IntColumn:
    """Trips to L2 in which a warpgroup sums its share: unit by unit, a few slices at a time.

    `Partials` in workers/kernels/common/partials.cuh says how many column groups make a unit, and how many slices it
    requests together.
    """
    groups = c["tile_n"] // wgmma.N_STEP
    single = (c["swap_ab"] == 1) | (groups % 2 == 1)
    unit = np.where(single, 1, np.where(groups % 4 > 0, 2, 4))
    ahead = np.where(single, 16, np.where(groups % 4 > 0, 4, 2))
    units = groups // unit * (c["tile_m"] // (wgmma.M * c["team"]))
    return -(-units // c["split_k"]) * -(-c["split_k"] // ahead)


def _pack_us(c: Columns) -> float:
    p = c.problem
    size = p.k * p.batch * input_bytes(p)
    moved = sum(2 * rows * size for name, rows in (("a", p.m), ("b", p.n)) if needs_packing(p, name))
    return moved / PACK_TBS / 1e6 + PACK_US if moved else 0.0


def _operands_moved(c: Columns) -> FloatColumn:
    """Bytes of A and B read from memory: some more than once if an operand overflows half of L2."""
    along_m = c["raster"] == RASTER_ALONG_M
    across = group_width(np.where(along_m, c["tiles_m"], c["tiles_n"]), c["raster_group"]).astype(np.float64)
    # Tiles in flight form a block of `wide` x `tall` cluster tiles; the squarer it is, the more they share.
    in_flight = np.maximum(c.device.sm_count // c["cluster_size"], 1)
    wide = np.minimum(across, in_flight)
    tall = np.maximum(in_flight / wide, 1)
    m_side = np.where(along_m, wide, tall) * c["tile_m"] * c["cluster_m"]
    n_side = np.where(along_m, tall, wide) * c["tile_n"] * c["cluster_n"]
    m, n = extent_m(c), extent_n(c)
    m_passes = np.maximum(n / np.maximum(n_side, 1), 1)
    n_passes = np.maximum(m / np.maximum(m_side, 1), 1)
    # As floats: the bytes of problems that fit no GPU, which may be asked about too, don't fit 64 bits.
    size = float(input_bytes(c.problem) * c.problem.k * c.problem.batch)
    a_bytes, b_bytes = m * size, n * size
    l2_bytes = c.device.l2_bytes // 2
    a_moved = np.where(a_bytes > l2_bytes, a_bytes * m_passes, a_bytes)
    b_moved = np.where(b_bytes > l2_bytes, b_bytes * n_passes, b_bytes)
    moved: FloatColumn = a_moved + b_moved
    return moved


def _reread(c: Columns) -> FloatColumn:
    """Memory traffic as a multiple of the least: operands read again, and C written in partial sectors."""
    parts = (c["epilogue"] != EPILOGUE_DIRECT) & (stored_row_bytes(c) % SECTOR_BYTES > 0)
    c_bytes = c.problem.m * c.problem.n * c.problem.batch * output_bytes(c.problem)
    written = c_bytes * np.where(parts, PART_SECTORS, 1)
    moved: FloatColumn = (_operands_moved(c) + written) / c.problem.min_bytes
    return np.maximum(moved, 1)
