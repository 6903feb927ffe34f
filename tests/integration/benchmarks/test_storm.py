"""A small storm: `python -m benchmarks.storm` makes large ones."""

from __future__ import annotations

from benchmarks.storm import run


def test_after_a_storm_every_problem_has_ended_and_nothing_was_lost_or_done_twice() -> None:
    storm, found = run(problems=10, workers=3, faults=6, heartbeat_seconds=1.0, seed=2, most_seconds=300)
    assert len(storm.faults) == 6
    # The benchmark measures how soon; this machine may be busy.
    assert [check for check in found.checks if not check.holds and "within" not in check.what] == []
    assert len(found.checks) == 8
