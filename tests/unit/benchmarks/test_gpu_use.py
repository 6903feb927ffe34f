"""Readings of several GPUs become one share."""

from __future__ import annotations

import threading

import pytest

from benchmarks.gpu_use import GpuUse


def test_the_share_is_the_mean_over_the_gpus_that_can_tell() -> None:
    asked = threading.Event()

    def last() -> int:
        asked.set()
        return 60

    with GpuUse([lambda: 80, lambda: None, last]) as use:
        assert asked.wait(30)
    assert use.share() == pytest.approx(0.7)


def test_no_share_without_gpus() -> None:
    with GpuUse([]) as use:
        assert use.share() is None
