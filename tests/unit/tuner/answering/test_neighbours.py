"""Configs of neighbours are offered as candidates are today."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from space.devices import profile_named
from space.kinds.gemm import Gemm
from tests.support import DEVICE, FAMILY, PROVENANCE, measured
from tuner.answering.neighbours import Judge, best_neighbour
from tuner.evidence.records import Best, StoredMeasurement
from workers.measurement import Policy


@pytest.mark.parametrize("hint", ["none", "stream_a", "stream_b"])
def test_a_neighbour_that_marked_its_weights_is_offered_without_the_mark(hint: str) -> None:
    problem, config = Gemm.parse("64x4096x4032"), FAMILY.config({"cache_hint": hint})
    taken = measured(config, 12.0, problem, "final", policy=Policy.CHAIN)
    stored = StoredMeasurement(1, 1, DEVICE, "cuda", datetime.now(UTC), PROVENANCE, taken)
    best = Best(problem, DEVICE, "cuda", stored, None, None, None, 40, {})
    found = best_neighbour([best], Gemm.parse("64x4096x4096"), Judge(profile_named(DEVICE), None), tuple(Policy))
    assert found is not None
    assert (found.best, found.config) == (best, FAMILY.config({}))
