"""First choices beside what tunes found, with a GPU that tells times from a list."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.first_choices import TURNS, Pair, rows, searched, summary
from space.config import Config
from space.family import is_own
from space.kinds.gemm import Gemm
from space.problem import Problem
from tests.support import FAMILY, measured
from tuner.prediction.files import model_for
from workers.build import Build
from workers.measurement import Measurement, Outcome
from workers.recorded import RecordedWorker

RECORDED = Path("recorded/h200")
FOUND, CHOSEN = (FAMILY.config({"tile_n": width}) for width in (64, 128))
PROBLEMS = [Gemm.parse(shape) for shape in ("16x4096x4096", "32x4096x4096")]


@dataclass
class Screens:
    """A builder and a bench in one: every screening of a config has the next of its times or failures."""

    told: dict[Config, list[float | Outcome]]
    problems: list[Problem] = field(default_factory=list)

    def prepare(self, problem: Problem, seed: int) -> None:
        self.problems.append(problem)

    def builds(self, problem: Problem, configs: Sequence[Config]) -> Iterator[tuple[Config, Build]]:
        return ((config, Build(str(place), b"", 0, (), "13.5", 0.0)) for place, config in enumerate(configs))

    def ready(self, config: Config, digest: str) -> SimpleNamespace:
        return SimpleNamespace(config=config, discard=lambda: None)

    def screen(self, ready: SimpleNamespace, *_: object) -> Measurement:
        told = self.told[ready.config].pop(0)
        if isinstance(told, Outcome):
            return measured(ready.config, 1.0, self.problems[-1], outcome=told)
        return measured(ready.config, told, self.problems[-1])


@pytest.mark.parametrize(("chosen", "share"), [
    ([12.5] * TURNS, 0.8), ([50.0, 12.5, 12.5, 12.5, 9.0], 0.8),
    # Wrong once is wrong.
    ([12.5, 12.5, Outcome.WRONG_RESULT, 12.5, 12.5], 0.0),
])  # fmt: skip
def test_a_first_choice_is_compared_by_medians(chosen: list[float | Outcome], share: float) -> None:
    gpu: Any = Screens({FOUND: [10.0] * TURNS, CHOSEN: chosen})
    ((found, line),) = rows(gpu, gpu, [Pair(PROBLEMS[0], CHOSEN, FOUND)])
    assert found == pytest.approx(share)
    assert CHOSEN.key in line
    assert ("| none |" in line) is (share == 0)


def test_the_same_config_is_measured_once_and_no_choice_counts_as_nothing() -> None:
    gpu: Any = Screens({FOUND: [10.0] * 2 * TURNS})
    found = [share for share, _ in rows(gpu, gpu, [Pair(PROBLEMS[0], FOUND, FOUND), Pair(PROBLEMS[1], None, FOUND)])]
    assert found == [1.0, 0.0]
    assert gpu.problems == PROBLEMS


def test_the_summary_counts_what_has_no_choice() -> None:
    assert "Of 3 problems: 0.928 of the fastest known (geometric mean), 0.800" in summary([1.0, 0.8, 1.0])
    assert "0.000 at worst; 1 have no choice, or a wrong one" in summary([0.0, 1.0])


def test_a_listed_problem_is_searched_for_the_fastest_of_ours(tmp_path: Path) -> None:
    listed = tmp_path / "list.json"
    listed.write_text(json.dumps([{"m": 4096, "n": 4096, "k": 4096}, {"m": 8192, "n": 8192, "k": 8192}]))
    with RecordedWorker(RECORDED, None, compiles=False) as worker:
        model = model_for(worker.facts.name).model
        assert model is not None
        first, second = searched(listed, model, worker, 6)
        screened = list(worker.begin(first.problem).screen([first.found]))
    assert [pair.problem.shape for pair in (first, second)] == ["4096x4096x4096", "8192x8192x8192"]
    assert first.chosen is not None
    assert is_own(first.found)
    assert screened[0].outcome is Outcome.CORRECT


def test_of_what_was_screened_the_fastest_of_ours_that_is_right_is_known() -> None:
    model = model_for("NVIDIA H200").model
    assert model is not None
    slow, fast = measured(FOUND, 12.0, PROBLEMS[0]), measured(CHOSEN, 10.0, PROBLEMS[0])
    wrong = measured(CHOSEN, 9.0, PROBLEMS[0], outcome=Outcome.WRONG_RESULT)
    pairs = [Pair.of(model, PROBLEMS[0], screened) for screened in ([slow, fast], [slow, wrong], [wrong])]
    assert [pair and pair.found for pair in pairs] == [CHOSEN, FOUND, None]
