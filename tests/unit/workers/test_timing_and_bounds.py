"""Arithmetic of timing and verification that needs no GPU."""

from __future__ import annotations

import math

import numpy as np
import pytest


def test_every_copy_is_launched_equally_often_in_a_graph() -> None:
    timing = pytest.importorskip("workers.cuda.timing")
    for once_us in (0.5, 3.0, 40.0, 200.0, 5000.0):
        for copies in (2, 3, 7, 160):
            launches = timing.launches_for(once_us, copies)
            assert launches % copies == 0
            assert launches >= max(copies, timing.FEWEST_LAUNCHES)


def test_the_accumulation_bound_holds_for_f32_sums_in_steps_and_is_not_generous() -> None:
    verification = pytest.importorskip("workers.cuda.verification")
    rng = np.random.default_rng(5)
    for k in (64, 1024, 8192):
        a, b = rng.standard_normal((2, 400, k)).astype(np.float32)
        # Truncate to bf16, so that products are exact in f32 as they are on the tensor core.
        a, b = ((x.view(np.uint32) & 0xFFFF0000).view(np.float32) for x in (a, b))
        exact = np.einsum("ik,ik->i", a.astype(np.float64), b.astype(np.float64))
        total = np.zeros(400, dtype=np.float32)
        for start in range(0, k, 16):
            step = np.einsum("ik,ik->i", a[:, start : start + 16], b[:, start : start + 16])
            total = (total + step).astype(np.float32)
        norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
        assert (np.abs(total - exact) <= verification.accumulation_bound(k) * norms).all()
        # A lost K slice of 64 has a standard deviation of 8: it must stand out from the bound.
        assert verification.accumulation_bound(k) * k < math.sqrt(64)
