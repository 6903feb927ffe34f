"""The clock that a problem runs at: where the tensor cores are kept busy the card's power limit takes it down."""

from __future__ import annotations

from typing import Final

from space.devices import DeviceProfile
from space.problem import Problem

#: Microseconds of a launch in which the multiprocessors do not draw full power: its start, its fill, its end.
EDGES_US: Final = 5.0
#: What memory at its full rate draws, against tensor cores at theirs.
MEMORY_SHARE: Final = 0.28
#: The clock falls between these shares of full load, evenly; fitted to the clocks of the recordings. Those of the
#: fastest candidates it meets within 4 % for 36 of 50 problems, within 10 % for 44, and within 25 % for all.
FALLS_FROM, FALLS_TO = 0.76, 1.05


def clock_ghz(problem: Problem, device: DeviceProfile) -> float:
    """Between the device's highest clock and the one under sustained tensor load, by what the problem keeps busy."""
    tensor_us = problem.flops / device.peak_tflops(problem.dtype) / 1e6
    memory_us = problem.min_bytes / device.hbm_tbs / 1e6
    load = (tensor_us + MEMORY_SHARE * memory_us) / (max(tensor_us, memory_us) + EDGES_US)
    fallen = min(max((load - FALLS_FROM) / (FALLS_TO - FALLS_FROM), 0.0), 1.0)
    return device.highest_clock_ghz - fallen * (device.highest_clock_ghz - device.clock_ghz)
