"""Runs of the search benchmark in processes of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.search.child import Child, End, Plan
from tests.support import FAMILY

RECORDINGS = Path(__file__).resolve().parents[3] / "recorded" / "h200"


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Child]:
    recording = min(RECORDINGS.glob("*.parquet"))
    (tmp_path / recording.name).symlink_to(recording)
    started = Child(Plan((str(tmp_path),), (), FAMILY.name, model_seeds=1, trees=4, most=12))
    yield started
    started.close()


def test_a_run_that_fails_is_named_and_the_next_one_goes_on(child: Child) -> None:
    failed, well = child.done([("random", 7, 0), ("random", 0, 0)])
    assert failed == End([], pytest.approx(failed.seconds), "IndexError: list index out of range")
    assert len(set(well.order)) == 12


def test_a_process_that_dies_costs_the_run_that_it_was_at(child: Child) -> None:
    process = child.alive()
    process.kill()
    process.wait()
    failed, well = child.done([("random", 0, 0), ("random", 0, 1)])
    assert failed.failure == "its process ended with status -9"
    assert len(set(well.order)) == 12
