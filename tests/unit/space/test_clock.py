"""The clock that a problem is expected to run at: full load takes it down, short and narrow products keep it up."""

from __future__ import annotations

import numpy as np
import pytest

from space.clock import clock_ghz
from space.devices import profile_named
from space.families.common import PDL_SAVES_US, pdl_saved_us
from space.kinds.gemm import Gemm

H200 = profile_named("NVIDIA H200")

#: SM clock of the fastest recorded candidates, GHz.
MEASURED = {
    "bf16:8192x8192x8192": 1.41, "bf16:2048x8192x1024": 1.55, "bf16:1024x2880x2880": 1.75, "bf16:512x512x512": 1.98,
    "bf16:16x4096x14336": 1.98, "bf16:1x128256x4096": 1.98, "fp8_e4m3:4096x2112x7168": 1.55,
}  # fmt: skip


@pytest.mark.parametrize("asked", MEASURED)
def test_it_is_near_the_one_that_was_measured(asked: str) -> None:
    dtype, shape = asked.split(":")
    assert clock_ghz(Gemm.parse(shape, dtype), H200) == pytest.approx(MEASURED[asked], rel=0.1)


def test_it_stays_between_the_two_of_the_device() -> None:
    clocks = [clock_ghz(Gemm(m, 4096, k), H200) for m in (1, 64, 1024, 65_536) for k in (64, 4096, 65_536)]
    assert min(clocks) >= H200.clock_ghz
    assert max(clocks) <= H200.highest_clock_ghz


def test_a_launch_beside_which_half_a_launch_fits_crowds_and_smaller_and_larger_ones_gain() -> None:
    held = np.array([0.2, 0.5, 0.51, 0.6, 0.8, 3.0])
    saved = pdl_saved_us(held, np.full(6, 20.0))
    assert saved[[0, 1, 4, 5]].tolist() == [PDL_SAVES_US] * 4
    assert saved[2] < saved[3] < 0
