"""Predicted time of `sm90_wgmma` candidates: waves of tiles, each bound by the slowest of its resources.

Terms and rates: a multiprocessor multiplies 4,096 dense 16-bit FLOP a clock and reads 128 bytes of shared
memory a clock; what the device sustains is in `DeviceLimits`. The estimate ranks candidates; it is never
shown as a measurement.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from space.arch import DeviceLimits
from space.columns import Columns, FloatColumn
from space.families.sm90_wgmma.knobs import EPILOGUE_TMA, RASTER_ALONG_M
from space.problem import DTYPE_BYTES

SMEM_BYTES_PER_CLOCK: Final = 128
#: Clocks between the end of one stage's products and the start of the next that nothing hides.
STAGE_OVERHEAD_CLOCKS: Final = 30
#: Filling the ring before the first product: an L2 or HBM round trip and a barrier.
FILL_CLOCKS: Final = 1_400
#: From issuing a load to its barrier, under load; a ring of S stages hides S - 1 stages of it.
LOAD_LATENCY_CLOCKS: Final = 1_500


def estimate_us(c: Columns, device: DeviceLimits) -> FloatColumn:
    """Microseconds of one launch with cold L2, one row a candidate."""
    clocks_per_us = device.clock_ghz * 1e3
    tiles = c["tiles_m"] * c["tiles_n"]
    slots = np.maximum(device.sm_count // c["cluster_size"], 1)
    waves = -(-tiles // slots)
    busy = np.minimum(tiles, slots) * c["cluster_size"]
    mainloop = c["k_iterations"] * _stage_clocks(c, device, busy)
    exposed = _epilogue_clocks(c, busy, device)
    sm_us = (FILL_CLOCKS + waves * (mainloop + exposed)) / clocks_per_us
    hbm_us = c.problem.min_bytes * _reread(c) / device.hbm_tbs / 1e6
    flops_us = c.problem.flops / device.peak_tflops(c.problem.dtype) / 1e6
    return np.maximum(np.maximum(sm_us, hbm_us), flops_us) + device.launch_us


def _stage_clocks(c: Columns, device: DeviceLimits, busy: FloatColumn) -> FloatColumn:
    tile_m, tile_n, tile_k = (c[name].astype(np.float64) for name in ("tile_m", "tile_n", "tile_k"))
    bytes_k = tile_k * DTYPE_BYTES[c.problem.dtype_a]
    tensor = tile_m * tile_n * bytes_k / 4096
    loaded = (tile_m + tile_n) * bytes_k
    read = (tile_m + tile_n * tile_m / 64) * bytes_k
    smem = (read + loaded) / SMEM_BYTES_PER_CLOCK
    from_l2 = (tile_m / c["cluster_n"] + tile_n / c["cluster_m"]) * bytes_k
    l2 = from_l2 * busy / (device.l2_tbs * 1e3 / device.clock_ghz)
    latency = LOAD_LATENCY_CLOCKS / (c["stages"] - 1)
    bound = np.maximum(np.maximum(tensor, smem), np.maximum(l2, latency))
    return bound + STAGE_OVERHEAD_CLOCKS


def _epilogue_clocks(c: Columns, busy: FloatColumn, device: DeviceLimits) -> FloatColumn:
    """Converting and handing over C; the TMA store itself runs beside the next tile."""
    elements = (c["tile_m"] * c["tile_n"]).astype(np.float64)
    written = elements * DTYPE_BYTES[c.problem.dtype_c] * busy / (device.hbm_tbs * 1e3 / device.clock_ghz)
    handover = elements / 64 + 200
    last_wave = c["tiles_m"] * c["tiles_n"] <= device.sm_count // c["cluster_size"]
    tma = handover + np.where(last_wave, written + 600, 0)
    return np.where(c["epilogue"] == EPILOGUE_TMA, tma, handover + written)


def _reread(c: Columns) -> FloatColumn:
    """How often HBM bytes are moved: 1, and more where a wave's operands overflow half of L2."""
    group = c["raster_group"].astype(np.float64)
    along_m = c["raster"] == RASTER_ALONG_M
    rows = np.where(along_m, np.minimum(group, c["tiles_m"]), c["tiles_m"])
    cols = np.where(along_m, c["tiles_n"], np.minimum(group, c["tiles_n"]))
    # Tiles in flight form a block of `wide` x `tall` cluster tiles; squarer blocks share more.
    in_flight = np.maximum(132 // c["cluster_size"], 1)
    wide = np.minimum(np.where(along_m, rows, cols), in_flight)
    tall = np.maximum(in_flight / wide, 1)
    m_side = np.where(along_m, wide, tall) * c["tile_m"] * c["cluster_m"]
    n_side = np.where(along_m, tall, wide) * c["tile_n"] * c["cluster_n"]
    m_passes = np.maximum(c.problem.n / np.maximum(n_side, 1), 1)
    n_passes = np.maximum(c.problem.m / np.maximum(m_side, 1), 1)
    size = DTYPE_BYTES[c.problem.dtype_a] * c.problem.k
    a_bytes, b_bytes = c.problem.m * size, c.problem.n * size
    l2_bytes = 30 * 2**20
    a_moved = np.where(a_bytes > l2_bytes, a_bytes * m_passes, a_bytes)
    b_moved = np.where(b_bytes > l2_bytes, b_bytes * n_passes, b_bytes)
    c_bytes = c.problem.m * c.problem.n * DTYPE_BYTES[c.problem.dtype_c]
    return (a_moved + b_moved + c_bytes) / c.problem.min_bytes
