"""What is said of the library's kernels that its heuristic doesn't list, where their times are known."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.unlisted import Row, measured, summary
from space.config import Config
from space.family import family_named
from space.kinds.gemm import Gemm
from tests.support import measured as taken
from workers.cuda.driver import CudaError
from workers.measurement import Measurement, Outcome

PROBLEM = Gemm.parse("256x3072x4096")
ROW = Row(PROBLEM, [15.0, 14.0, math.inf], [13.0, 14.0, math.inf, *[20.0] * 20, 12.5])


def test_the_fastest_of_the_first_and_of_all_are_held_against_the_fastest_listed() -> None:
    assert ROW.compared
    assert (ROW.gain(16), ROW.gain(24)) == (14 / 13, 14 / 12.5)
    assert ROW.behind == pytest.approx(13 / 12.5 - 1)
    assert ROW.line.startswith("| bf16 nt 256x3072x4096 | 3 | 14.00 | 24 | 1 | 1.077 | 1.120 | 24 |")
    assert summary([ROW, ROW]).startswith(
        "2 problems: the fastest of the first 16 that are not listed is 1.077 times as fast as the fastest listed "
        "(geometric mean; 1.077 to 1.077), that of all 1.120 times. The first 16 are within 0.5% of all for 0, and at "
        "most 4.0% behind. 46 of 48 were right."
    )


def test_a_problem_whose_first_are_all_wrong_does_not_end_the_table() -> None:
    lost = Row(PROBLEM, [15.0], [math.inf] * 16 + [13.0, 12.5])
    assert (lost.compared, lost.behind) == (True, math.inf)
    assert "the first 16 that are not listed is 0.000 times as fast" in summary([ROW, lost])


def test_an_order_is_as_good_as_its_ranks() -> None:
    assert Row(PROBLEM, [1.0], [1.0, math.inf, 2.0, 3.0]).correlation == pytest.approx(1)
    assert Row(PROBLEM, [1.0], [3.0, 2.0, 1.0]).correlation == pytest.approx(-1)


@pytest.mark.parametrize(
    ("listed", "others"), [([], [1.0, 2.0]), ([math.inf], [1.0, 2.0]), ([1.0], [1.0]), ([1.0], [])]
)
def test_without_two_sides_nothing_is_compared(listed: list[float], others: list[float]) -> None:
    assert not Row(PROBLEM, listed, others).compared
    assert summary([]) == "Nothing was compared."


class Bench:
    """Takes the GPU's place: times by rank, none where a candidate is wrong, None where the library refuses it."""

    def __init__(self, us: dict[int, float | None]) -> None:
        self._us, self.discarded = us, 0
        self.baselines = [family_named("cublaslt").config({"rank": rank}) for rank in (0, 1)]

    def prepare(self, problem: Gemm, seed: int) -> None: ...
    def unlisted(self, most: int) -> list[Config]:
        return [family_named("cublaslt").config({"rank": rank}) for rank in range(2, 2 + most)]

    def ready(self, config: Config, digest: str) -> Any:  # noqa: ANN401
        if self._us[config.number("rank")] is None:
            raise CudaError("cublasLtMatmul", "CUDA_ERROR_NOT_SUPPORTED")
        return SimpleNamespace(config=config, discard=self._discard)

    def screen(self, ready: Any, *_: object) -> Measurement:  # noqa: ANN401
        us = self._us[ready.config.number("rank")] or 0.0
        return taken(ready.config, us) if us else taken(ready.config, outcome=Outcome.WRONG_RESULT)

    def _discard(self) -> None:
        self.discarded += 1


def test_what_is_refused_or_wrong_has_no_time_and_keeps_nothing_loaded() -> None:
    bench = Bench({0: 5.0, 1: None, 2: 4.0, 3: 0.0, 4: 6.0})
    row = measured(bench, PROBLEM, 3)  # type: ignore[arg-type]
    assert (row.listed_us, row.others_us) == ([5.0, math.inf], [4.0, math.inf, 6.0])
    assert bench.discarded == 4
