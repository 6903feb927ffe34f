"""Time estimate of `mma_sync`: waves of blocks that share a multiprocessor, each wave bound by its slowest resource.

Rates are the profile's. Constants are those of `sm90_wgmma`, which the recordings of an H200 ground, where the resource
is the same; those marked assumed are not fitted to anything yet. The estimate ranks candidates and is never shown as a
measurement.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from space.arch import VECTOR_BYTES, WARP_THREADS, WORD_BYTES
from space.clock import clock_ghz
from space.columns import Columns, FloatColumn, IntColumn
from space.devices import DeviceProfile
from space.families.common import eighth_norm, extent_m, extent_n, group_width, input_bytes, output_bytes
from space.families.mma_sync.derive import slice_stages, stage_k_bytes
from space.families.mma_sync.knobs import COPIES_TMA
from space.families.mma_sync.operands import block_scaled, copy_bytes, narrowest_copy, needs_packing, tile_rows
from space.families.mma_sync.rules import copying_steps, finish_registers, loop_registers
from space.families.mma_sync.stream_k import resident_blocks
from space.layouts.banks import BYTES_PER_CLOCK

#: Rate of mma.sync as a share of wgmma's: a bare loop of it on an H200 reaches 0.71 (tf32) to 0.84 (int8) of what wgmma
#: sustains there.
SHARE_OF_WGMMA: Final = 0.77
#: Most bytes that one multiprocessor reads from L2 per clock.
L2_BYTES_PER_CLOCK: Final = 64
#: Time that waits add to that of the products, and that warps of the same multiprocessor hide; assumed.
LONE_WARP: Final = 0.4
#: Latency from issuing a copy to its arrival, under load; a ring of S stages hides it behind S - 1 of them.
LOAD_LATENCY_CLOCKS: Final = 1_250
#: Clocks for which a warp's copy of less than 16 bytes a lane keeps the ports of shared memory, and clocks of a step of
#: a stage whose loads of less than 4 bytes wait in registers: both fitted to `recorded/h200_unaligned`.
NARROW_COPY_CLOCKS, HELD_STEP_CLOCKS = 9, 360
#: Clocks of the wait and the barrier of a stage, which other blocks of the multiprocessor hide; assumed.
BARRIER_CLOCKS: Final = 40
#: Clocks of a stage's mbarriers where TMA copies it: no warp waits for others; assumed.
MBARRIER_CLOCKS: Final = 20
#: From a block's start to its first product.
START_CLOCKS: Final = 800
#: Elements of C that a warp converts and stores per clock, and the share of stores that nothing hides.
HANDOVER_ELEMENTS, STORES_EXPOSED = 2, 0.6
#: Split-K and stream-K: clocks until all slices have arrived, and the rate at which a block stores sums and loads those
#: of others.
SPLIT_CLOCKS, SPLIT_BYTES_PER_CLOCK = 4_500, 17
#: The pass that packs operands: its launch, and the share of memory's copy rate at which it reads and writes.
PACK_US, PACK_SHARE = 2.5, 0.65


def estimate_us(c: Columns, device: DeviceProfile) -> FloatColumn:
    """Microseconds of one launch with a cold L2, one row per candidate."""
    clocks_per_us = clock_ghz(c.problem, device) * 1e3
    tiles = c["tiles_m"] * c["tiles_n"] * c["split_k"] * c.problem.batch
    resident = np.minimum(_resident(c), -(-tiles // device.sm_count))
    slots = resident * device.sm_count
    full, left = tiles // slots, tiles % slots
    wave_us = _wave_clocks(c, device, resident, clocks_per_us) / clocks_per_us
    # The last wave is spread over all multiprocessors.
    last_us = _wave_clocks(c, device, np.maximum(-(-left // device.sm_count), 1), clocks_per_us) / clocks_per_us
    sm_us = full * wave_us + np.where(left > 0, last_us, 0.0) + START_CLOCKS / clocks_per_us
    sm_us = np.where(c["stream_k"] == 1, _streamed_us(c, device, clocks_per_us), sm_us)
    hbm_us = c.problem.min_bytes * _reread(c, slots) / device.hbm_tbs / 1e6 + START_CLOCKS / clocks_per_us
    total: FloatColumn = eighth_norm(sm_us, hbm_us) + _split_clocks(c) / clocks_per_us + device.launch_us
    return total + _pack_us(c, device)


def _streamed_us(c: Columns, device: DeviceProfile, clocks_per_us: float) -> FloatColumn:
    """Stream-K: waves without a partial one, then the fix-up: one block stores its slice and loads those of a tile."""
    tiles, slots = c["tiles_m"] * c["tiles_n"] * c.problem.batch, resident_blocks(c)
    slices = 1 + c["sharing_blocks"] / np.maximum(c["shared_tiles"], 1)
    sums = (c["tile_m"] * c["tile_n"] * 4).astype(np.float64)
    fix_up = SPLIT_CLOCKS + (1 + slices) * sums / SPLIT_BYTES_PER_CLOCK
    clocks = tiles / slots * _wave_clocks(c, device, c["blocks_per_sm"], clocks_per_us) + START_CLOCKS + fix_up
    column: FloatColumn = clocks / clocks_per_us
    return column


def _resident(c: Columns) -> IntColumn:
    """Blocks that the shared memory, registers and threads of a multiprocessor hold."""
    by_smem = c.arch.smem_per_sm_bytes // (c["shared_memory_bytes"] + c.arch.smem_reserved_bytes)
    registers = np.minimum(np.maximum(loop_registers(c), finish_registers(c)), c["entry_registers"])
    by_registers = c.arch.registers_per_block // (c["threads"] * registers)
    by_threads = np.minimum(c.arch.threads_per_sm // c["threads"], c.arch.blocks_per_sm)
    column: IntColumn = np.maximum(np.minimum(np.minimum(by_smem, by_registers), by_threads), 1)
    return column


def _wave_clocks(c: Columns, device: DeviceProfile, together: IntColumn, clocks_per_us: float) -> FloatColumn:
    """Clocks of one wave of tiles, `together` of them on each multiprocessor."""
    bytes_k = stage_k_bytes(c).astype(np.float64)
    flops = 2.0 * c["tile_m"] * c["tile_n"] * c["tile_k"]
    flops_per_clock = _tflops(c, device) * 1e6 / device.sm_count / clocks_per_us
    warps = c["warps_m"] * c["warps_n"]
    tensor = flops / flops_per_clock * (1 + LONE_WARP / (warps * together))
    loaded = (c["tile_m"] + c["tile_n"]) * bytes_k
    read = (c["tile_m"] * c["warps_n"] + c["tile_n"] * c["warps_m"]) * bytes_k
    smem = read / BYTES_PER_CLOCK + _copy_clocks(c)
    l2_per_clock = np.minimum(device.l2_tbs * 1e6 / clocks_per_us / device.sm_count, L2_BYTES_PER_CLOCK)
    busy = together * np.maximum(_fifth_norm(tensor, smem), loaded / l2_per_clock)
    latency = LOAD_LATENCY_CLOCKS / (c["stages"] - 1) + _held_clocks(c)
    produced = c["copies"] == COPIES_TMA
    # A producer asks for a stage as soon as it is free, and for the next tile during the epilogue.
    stage = np.where(
        produced,
        eighth_norm(busy, latency) + MBARRIER_CLOCKS / together,
        np.hypot(busy, latency) + BARRIER_CLOCKS / together,
    )
    # Other blocks of the multiprocessor multiply while one starts or stores.
    start = np.where(produced & (c["persistent"] == 1), 0.0, START_CLOCKS / together)
    ends = start + _epilogue_clocks(c, device, clocks_per_us)
    column: FloatColumn = slice_stages(c) * stage + ends
    return column


def _copy_clocks(c: Columns) -> FloatColumn:
    """Clocks for which a stage's copies keep the ports of shared memory."""
    clocks = np.zeros(len(c))
    for operand in "ab":
        width = copy_bytes(c.problem, operand)
        warp_bytes = WARP_THREADS * width
        warp_clocks = warp_bytes / BYTES_PER_CLOCK if width == VECTOR_BYTES else NARROW_COPY_CLOCKS
        clocks += tile_rows(c, operand) * stage_k_bytes(c) / warp_bytes * warp_clocks
    return clocks


def _held_clocks(c: Columns) -> FloatColumn:
    """Clocks of a stage that wait for what passes through registers: asynchronous copies wait for nothing."""
    held = narrowest_copy(c.problem) < WORD_BYTES
    column: FloatColumn = HELD_STEP_CLOCKS * copying_steps(c).astype(np.float64) * held
    return column


def _tflops(c: Columns, device: DeviceProfile) -> FloatColumn:
    """Rate of the tensor cores. A card's rate for fp8 is that of block-scaled products, where it has them."""
    share = SHARE_OF_WGMMA if "wgmma" in c.arch.features else 1.0
    rate = np.full(len(c), share * device.peak_tflops(c.problem.dtype))
    if block_scaled(c.problem, c.arch.name) is None:
        return rate
    halved = device.peak_tflops("fp16_acc16") / device.peak_tflops("fp16")
    return np.where(c["unit_scales"] == 1, rate, rate / halved)


def _epilogue_clocks(c: Columns, device: DeviceProfile, clocks_per_us: float) -> FloatColumn:
    elements = (c["tile_m"] * c["tile_n"]).astype(np.float64) / c["split_k"]
    written = elements * output_bytes(c.problem) * device.sm_count / (device.hbm_tbs * 1e6 / clocks_per_us)
    column: FloatColumn = elements / (HANDOVER_ELEMENTS * c["warps_m"] * c["warps_n"]) + STORES_EXPOSED * written
    return column


def _fifth_norm(one: FloatColumn, other: FloatColumn) -> FloatColumn:
    """(one^5 + other^5)^(1/5): products wait for fragments and copies that share the ports of shared memory."""
    column: FloatColumn = (one**5 + other**5) ** 0.2
    return column


def _split_clocks(c: Columns) -> FloatColumn:
    """Clocks of split-K: a block stores the sums of a tile and loads as many, its share from every slice."""
    sums = (c["tile_m"] * c["tile_n"] * 4).astype(np.float64)
    return np.where(c["split_k"] > 1, SPLIT_CLOCKS + 2 * sums / SPLIT_BYTES_PER_CLOCK, 0.0)


def _reread(c: Columns, slots: IntColumn) -> FloatColumn:
    """Memory traffic as a multiple of the least: an operand that overflows half of L2 is read again for each block of
    tiles that run at the same time."""
    along_m = c["raster"] == 0
    across = group_width(np.where(along_m, c["tiles_m"], c["tiles_n"]), c["raster_group"])
    wide = np.minimum(across, slots)
    long = np.maximum(slots / wide, 1)
    m_side = np.where(along_m, wide, long) * c["tile_m"]
    n_side = np.where(along_m, long, wide) * c["tile_n"]
    m, n = extent_m(c), extent_n(c)
    # As floats: the bytes of problems that fit no GPU, which may be asked about too, don't fit 64 bits.
    size = float(input_bytes(c.problem) * c.problem.k * c.problem.batch)
    half = c.device.l2_bytes // 2
    a_moved = m * size * np.where(m * size > half, np.maximum(n / n_side, 1), 1)
    b_moved = n * size * np.where(n * size > half, np.maximum(m / m_side, 1), 1)
    written = c.problem.m * c.problem.n * c.problem.batch * output_bytes(c.problem)
    column: FloatColumn = np.maximum((a_moved + b_moved + written) / c.problem.min_bytes, 1)
    return column


def _pack_us(c: Columns, device: DeviceProfile) -> float:
    p = c.problem
    size = p.k * p.batch * input_bytes(p)
    moved = sum(2 * rows * size for name, rows in (("a", p.m), ("b", p.n)) if needs_packing(p, name))
    return moved / (PACK_SHARE * device.hbm_tbs) / 1e6 + PACK_US if moved else 0.0
