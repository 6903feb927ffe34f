"""Arithmetic of timing that needs no GPU."""

from __future__ import annotations

import pytest


def test_every_copy_is_launched_equally_often_in_a_graph() -> None:
    timing = pytest.importorskip("workers.cuda.timing")
    for once_us in (0.5, 3.0, 40.0, 200.0, 5000.0):
        for copies in (2, 3, 7, 160):
            launches = timing.launches_for(once_us, copies)
            assert launches % copies == 0
            assert launches >= max(copies, timing.FEWEST_LAUNCHES)
