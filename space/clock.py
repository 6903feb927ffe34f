"""The clock at which a problem runs: busy tensor cores reach the power limit, which lowers the clock."""

from __future__ import annotations

from typing import Final

from space.devices import DeviceProfile
from space.problem import Problem

#: Microseconds at the start and end of a launch in which multiprocessors draw less than full power.
EDGES_US: Final = 5.0
#: Power of memory at its full rate, relative to tensor cores at theirs.
MEMORY_SHARE: Final = 0.28
#: The clock falls linearly between these shares of full load, which are fitted to the recorded clocks: for the fastest
#: candidates, the result is within 4 % for 36 of 50 problems, within 10 % for 44, and within 25 % for all.
FALLS_FROM, FALLS_TO = 0.76, 1.05


def clock_ghz(problem: Problem, device: DeviceProfile) -> float:
    """Clock in GHz: between the highest and that of sustained tensor load, by the load of the problem."""
    tensor_us = problem.flops / device.peak_tflops(problem.dtype) / 1e6
    memory_us = problem.min_bytes / device.hbm_tbs / 1e6
    load = (tensor_us + MEMORY_SHARE * memory_us) / (max(tensor_us, memory_us) + EDGES_US)
    fallen = min(max((load - FALLS_FROM) / (FALLS_TO - FALLS_FROM), 0.0), 1.0)
    return device.highest_clock_ghz - fallen * (device.highest_clock_ghz - device.clock_ghz)
