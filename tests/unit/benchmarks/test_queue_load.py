"""The simulated workers of `benchmarks.queue_load` report what the service takes of a GPU."""

from __future__ import annotations

from benchmarks.queue_load import screenings
from space.kinds.gemm import Gemm
from tests.support import FACTS
from tuner.fleet.campaigns.checks import check_measurements


def test_what_a_simulated_worker_measures_is_taken() -> None:
    # Of the backlog: extents are multiples of 64 from 4096 on.
    problem = Gemm(4160, 4096, 4096)
    check_measurements(screenings(problem), problem, FACTS)
