"""Predicted time of `gemv` candidates: bytes at the rate that loads in flight sustain, in waves of blocks.

Ranks candidates of the family among one another; never shown as a measurement.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from space.arch import DeviceLimits
from space.columns import Columns, FloatColumn
from space.families.gemv.derive import element_bytes, row_bytes
from space.families.gemv.knobs import A_SMEM

#: From asking memory to having, unloaded.
LATENCY_US: Final = 0.8
#: Staging A, from the start of a block: a load's latency and a barrier.
STAGE_US: Final = 1.0
#: Shuffles and the write at the end of a tile; bringing slices together.
FINISH_US, SPLIT_US = 0.3, 1.5
#: f32 operations that one multiprocessor starts in a clock, and what of that a real loop gets.
FLOPS_PER_CLOCK, SHARE_OF_IT = 128, 0.5


def estimate_us(c: Columns, device: DeviceLimits) -> FloatColumn:
    """Microseconds of one launch with cold L2, one row a candidate."""
    tiles = (c["tiles_n"] * c["split_k"] * c.problem.batch).astype(np.float64)
    resident = np.minimum(c["blocks_per_sm"], np.ceil(tiles / device.sm_count))
    slots = np.minimum(resident * device.sm_count, tiles)
    tile_bytes = c["tile_n"] * row_bytes(c.problem) / c["split_k"]
    in_flight = slots * c["in_flight_bytes"] / c["blocks_per_sm"]
    bytes_us = np.minimum(device.hbm_tbs * 1e6, in_flight / LATENCY_US)
    # A wave ends with its slowest block: whole tiles, however few are left of the last wave.
    waves = np.ceil(tiles / slots)
    whole = np.minimum(waves * slots * tile_bytes, c.problem.min_bytes + slots * tile_bytes)
    stream_us = whole / bytes_us + LATENCY_US
    staged = np.where(c["a_path"] == A_SMEM, STAGE_US, 0.0)
    staged = np.where(c["persistent"] == 1, staged, staged * np.minimum(waves, 2))
    # Of an element of B: a conversion, a product a row, and its share of converting A.
    work = (c["rows"] + 1 + c["rows"] / c["columns"]) * c.problem.n * c.problem.k * c.problem.batch
    if c.problem.dtype_acc == "s32":
        work = work / 4
    rate = FLOPS_PER_CLOCK * SHARE_OF_IT * device.clock_ghz * 1e3 * np.minimum(slots, device.sm_count)
    narrow = np.maximum(4 / c["load_bytes"] / element_bytes(c.problem), 1)
    split = np.where(c["split_k"] > 1, SPLIT_US, 0.0)
    bound: FloatColumn = np.maximum(stream_us, narrow * work / rate) + staged + FINISH_US + split + device.launch_us
    return bound
