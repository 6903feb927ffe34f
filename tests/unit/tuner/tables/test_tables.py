"""A table in the place of a store: what it knows of one device, and nothing of another."""

from __future__ import annotations

from space.kinds.gemm import Gemm
from tests.unit.tuner.tables.test_exporters import DEVICE, entry
from tuner.tables.entries import best_of
from tuner.tables.tables import TableBests
from workers.measurement import Policy

ASKED, NEAR, FAR, OTHER = (Gemm.of(m, 4096, 4096, dtype) for m, dtype in
                           ((16, "bf16"), (24, "bf16"), (64, "bf16"), (16, "fp16")))  # fmt: skip
BESTS = TableBests([*(best_of(DEVICE, entry(each)) for each in (FAR, ASKED, NEAR, OTHER)),
                    best_of("NVIDIA L40S", entry(Gemm.of(17, 4096, 4096)))])  # fmt: skip


def test_neighbours_are_other_extents_of_the_same_device_nearest_first() -> None:
    assert [best.problem for best in BESTS.neighbours(ASKED, DEVICE)] == [NEAR, FAR]
    assert BESTS.neighbours(ASKED, "NVIDIA A100-SXM4-80GB") == []


def test_a_best_is_of_the_asked_device_and_policy() -> None:
    for policy, found in ((None, True), (Policy.SUSTAINED, True), (Policy.CHAIN_PDL, False)):
        assert (BESTS.best(ASKED, DEVICE, policy) is not None) == found
    assert BESTS.best(ASKED, "NVIDIA L40S") is None
