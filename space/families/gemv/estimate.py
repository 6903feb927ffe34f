"""Time estimate of `gemv`: bytes at the rate that the loads in flight sustain, in waves of blocks.

It ranks candidates of the family among one another and is never shown as a measurement.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from space.columns import Columns, FloatColumn
from space.devices import DeviceProfile
from space.families.common import input_bytes
from space.families.gemv.derive import fits_l1, row_bytes
from space.families.gemv.knobs import A_SMEM
from space.layouts.banks import BYTES_PER_CLOCK

#: Latency of memory, fitted to the recordings under `recorded/h200`.
LATENCY_US: Final = 1.0
#: Memory answers long pieces of a row faster: by this over the bytes that a team asks for together, it takes longer.
PIECE_BYTES: Final = 10
#: Barriers that staging A takes at the start of a tile, beyond the latency of its loads.
STAGE_US: Final = 0.3
#: Start and end of the first tile; those of a later one, which the other resident blocks hide in part; and the sum
#: over slices of K.
FIRST_US, LATER_US, SPLIT_US = 0.6, 0.2, 1.5
#: f32 operations per clock and multiprocessor, and the share of them that a real loop reaches.
FLOPS_PER_CLOCK, SHARE_OF_IT = 128, 0.5


def estimate_us(c: Columns, device: DeviceProfile) -> FloatColumn:
    """Microseconds of one launch with a cold L2, one row per candidate."""
    tiles = (c["tiles_n"] * c["split_k"] * c.problem.batch).astype(np.float64)
    resident = np.minimum(c["blocks_per_sm"], np.ceil(tiles / device.sm_count))
    slots = np.minimum(resident * device.sm_count, tiles)
    waves = np.ceil(tiles / slots)
    terms = (_stream_us(c, device, tiles, slots), _work_us(c, device, slots), _a_us(c, device, tiles, slots))
    busy = np.maximum.reduce(terms)
    turns = FIRST_US + LATER_US * (waves - 1) / resident
    stage = np.where(c["a_path"] == A_SMEM, STAGE_US, 0.0)
    split = np.where(c["split_k"] > 1, SPLIT_US, 0.0)
    total: FloatColumn = busy + turns + stage + split + device.launch_us
    return total


def _stream_us(c: Columns, device: DeviceProfile, tiles: FloatColumn, slots: FloatColumn) -> FloatColumn:
    """Time to read B at the rate of memory or of the loads in flight.

    The idle slots of the last wave count half: the tiles of the others have more of the memory's rate to themselves.
    """
    slice_bytes = row_bytes(c.problem) / c["split_k"]
    tile_bytes = c["tile_n"] * slice_bytes
    together = np.minimum(c["team"] * c["load_bytes"] * c["unroll"], slice_bytes)
    in_flight = slots * c["in_flight_bytes"] / c["blocks_per_sm"]
    rate = np.minimum(device.hbm_read_tbs * 1e6 / (1 + PIECE_BYTES / together), in_flight / LATENCY_US)
    read = (tiles + np.ceil(tiles / slots) * slots) / 2 * tile_bytes
    column: FloatColumn = np.minimum(read, c.problem.min_bytes + slots * tile_bytes) / rate
    return column


def _work_us(c: Columns, device: DeviceProfile, slots: FloatColumn) -> FloatColumn:
    """Time of arithmetic: per element of B a load, a conversion, a product per row of A, a share of converting A."""
    elements = c.problem.n * c.problem.k * c.problem.batch
    work = (c["rows"] + 1 + c["rows"] / c["columns"]) * elements / (4 if c.problem.dtype_acc == "s32" else 1)
    loads = 4 * elements * input_bytes(c.problem) / c["load_bytes"]
    rate = FLOPS_PER_CLOCK * SHARE_OF_IT * device.highest_clock_ghz * 1e3 * np.minimum(slots, device.sm_count)
    column: FloatColumn = (work + loads) / rate
    return column


def _a_us(c: Columns, device: DeviceProfile, tiles: FloatColumn, slots: FloatColumn) -> FloatColumn:
    """Time to read A: from L2 once per tile, and from shared memory or L1 again for every few columns; from L2 if it
    does not stay in L1."""
    slice_bytes = c["rows"] * row_bytes(c.problem) / c["split_k"]
    again = c["tile_n"] / c["columns"] * slice_bytes * tiles
    rate = BYTES_PER_CLOCK * device.highest_clock_ghz * 1e3 * np.minimum(slots, device.sm_count)
    if not fits_l1(c.problem):
        rate = np.where(c["a_path"] == A_SMEM, rate, np.minimum(rate, device.l2_tbs * 1e6))
    return tiles * slice_bytes / (device.l2_tbs * 1e6) + again / rate
