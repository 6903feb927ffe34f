"""A small storm: `python -m benchmarks.storm` makes large ones."""

from __future__ import annotations

import random

import pytest

from benchmarks.storm import run

pytestmark = pytest.mark.slow
FAULTS = ("service killed -9", "database cut off", "worker killed -9", "database failed over")


def test_after_a_storm_every_problem_has_ended_and_nothing_was_lost_or_done_twice() -> None:
    storm, found = run(8, 2, FAULTS, heartbeat_seconds=1.0, chance=random.Random(0), most_seconds=300)
    assert tuple(fault.kind for fault in storm.faults) == FAULTS
    # The benchmark measures how soon; this machine may be busy.
    assert [check for check in found.checks if not check.holds and "within" not in check.what] == []
    assert len(found.checks) == 11
