"""The GPU process's half of a screening: the next candidate is made ready meanwhile, and answers stay in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from space.config import Config
from tests.support import FAMILY, measured
from workers.cuda import driver, process
from workers.errors import CacheError
from workers.measurement import Measurement, Outcome

LOST, REFUSED = "CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_INVALID_IMAGE"


@dataclass
class Loaded:
    """Takes a loaded candidate's place."""

    config: Config
    digest: str


class Ready:
    """Takes the place of one that is ready."""

    def __init__(self, config: Config, log: list[str]) -> None:
        self.config, self._log = config, log

    def rest(self) -> None:
        self._log.append(f"rest {self.config['tile_n']}")

    def discard(self) -> None:
        self._log.append(f"discard {self.config['tile_n']}")


class Bench:
    """Takes the GPU's place; `errors` says what goes wrong where."""

    def __init__(self, errors: dict[tuple[str, int], Exception]) -> None:
        self.log: list[str] = []
        self._errors = errors

    def foresee(self, config: Config, digest: str) -> None:
        self._do("foresee", config)

    def load(self, config: Config, digest: str) -> Loaded:
        self._do("load", config)
        return Loaded(config, digest)

    def record(self, loaded: Loaded) -> Ready:
        self._do("record", loaded.config)
        return Ready(loaded.config, self.log)

    def screen(self, ready: Ready, begun: Callable[[], None], meanwhile: Callable[[], None]) -> Measurement:
        self._do("start", ready.config)
        begun()
        self._do("verified", ready.config)
        meanwhile()
        self._do("end", ready.config)
        return measured(ready.config)

    def failure(self, config: Config, digest: str, outcome: Outcome, detail: str) -> Measurement:
        return measured(config, outcome=outcome)

    def outcome(self, ready: Ready, outcome: Outcome, detail: str) -> Measurement:
        return measured(ready.config, outcome=outcome)

    def _do(self, what: str, config: Config) -> None:
        self.log.append(f"{what} {config['tile_n']}")
        if error := self._errors.get((what, config.number("tile_n"))):
            raise error


class Inbox:
    def __init__(self, questions: list[dict[str, Any]]) -> None:
        self.questions = questions

    def take_screen(self) -> dict[str, Any] | None:
        return self.questions.pop(0) if self.questions else None

    def coming_screen(self) -> dict[str, Any] | None:
        return self.questions[0] if self.questions else None


def question(tile_n: int) -> dict[str, Any]:
    config = FAMILY.config({"tile_n": tile_n})
    return {"do": "screen", "family": config.family, "knobs": config.knobs_text, "digest": ""}


def run(
    tiles: list[int], errors: dict[tuple[str, int], Exception] | None = None
) -> tuple[list[tuple[int, str]], list[str], Exception | None]:
    """Answers by tile, what the bench did, and what ended the run."""
    bench, answers = Bench(errors or {}), list[dict[str, Any]]()
    first, *rest = [question(tile) for tile in tiles]
    ended: Exception | None = None

    def reply(answer: dict[str, Any]) -> None:
        bench.log.append(f"tell {dict(answer['config']['values'])['tile_n']}")
        answers.append(answer)

    try:
        process.Screenings(bench, Inbox(rest), reply).run(first)
    except (driver.CudaError, CacheError) as error:
        ended = error
    told = [(dict(answer["config"]["values"])["tile_n"], answer["outcome"]) for answer in answers]
    return told, bench.log, ended


def test_the_next_candidate_is_loaded_while_one_is_verified_and_recorded_while_it_is_timed() -> None:
    told, log, ended = run([64, 72, 80])
    assert told == [(64, "correct"), (72, "correct"), (80, "correct")]
    work = [line for line in log if line.split()[0] in ("foresee", "load", "record", "start", "verified", "end")]
    assert work == [
        "load 64", "record 64",
        "start 64", "load 72", "verified 64", "record 72", "foresee 80", "end 64",
        "start 72", "load 80", "verified 72", "record 80", "end 72",
        "start 80", "verified 80", "end 80",
    ]  # fmt: skip
    assert [line for line in log if line.startswith("discard")] == ["discard 64", "discard 72", "discard 80"]
    # What frees without waiting is freed while the GPU is at work.
    assert log.index("rest 64") < log.index("end 72")
    assert ended is None


def test_an_answer_is_sent_when_the_gpu_has_work_again_and_at_once_when_there_is_none() -> None:
    _, log, _ = run([64, 72])
    assert log.index("start 72") < log.index("tell 64") < log.index("end 72")
    assert log.index("tell 72") < log.index("discard 72")


@pytest.mark.parametrize("where", ["load", "record", "start", "verified", "end"])
def test_a_candidate_that_the_driver_refuses_is_an_outcome(where: str) -> None:
    told, _, ended = run([64, 72, 80], {(where, 72): driver.CudaError("call", REFUSED)})
    assert told == [(64, "correct"), (72, "launch"), (80, "correct")]
    assert ended is None


@pytest.mark.parametrize("where", ["load", "record"])
def test_a_context_that_is_lost_on_the_gpu_ends_the_run_before_the_next_one_is_blamed(where: str) -> None:
    # The driver tells of it first when the next candidate is loaded, or recorded.
    errors = {(where, 72): driver.CudaError("load", LOST), ("end", 64): driver.CudaError("wait", LOST)}
    told, log, ended = run([64, 72, 80], errors)
    assert told == []
    assert str(ended).startswith("wait")
    assert "start 72" not in log


def test_a_context_that_is_lost_at_the_launch_is_told_after_the_answer_before() -> None:
    told, _, ended = run([64, 72, 80], {("start", 72): driver.CudaError("launch", LOST)})
    assert told == [(64, "correct")]
    assert str(ended).startswith("launch")


def test_a_context_that_is_lost_while_loading_is_told_after_the_answer_before() -> None:
    told, _, ended = run([64, 72, 80], {("load", 72): driver.CudaError("load", LOST)})
    assert told == [(64, "correct")]
    assert str(ended).startswith("load")


def test_a_cache_that_fails_is_told_after_the_answer_before() -> None:
    told, _, ended = run([64, 72, 80], {("load", 72): CacheError("the cache is gone")})
    assert told == [(64, "correct")]
    assert isinstance(ended, CacheError)


def test_one_that_was_loaded_has_its_turn_where_the_one_before_it_was_not_timed() -> None:
    told, log, _ = run([64, 72, 80], {("verified", 64): driver.CudaError("call", REFUSED)})
    assert told == [(64, "launch"), (72, "correct"), (80, "correct")]
    assert log.count("load 72") == log.count("record 72") == 1
    assert log.index("tell 64") < log.index("record 72")


def test_candidates_of_a_long_run_are_freed_in_batches_each_behind_its_last_answer() -> None:
    batch = process._UNLOAD_AT_ONCE
    tiles = [8 * (1 + place) for place in range(batch + 2)]
    _, log, _ = run(tiles)
    freed = [line for line in log if line.startswith("discard")]
    assert freed == [f"discard {tile}" for tile in tiles]
    assert log.index(f"tell {tiles[batch - 1]}") < log.index(freed[0])
    assert log.index(freed[batch - 1]) < log.index(f"end {tiles[batch]}") < log.index(freed[batch])


def test_errors_that_concern_one_call_alone_do_not_lose_the_context() -> None:
    assert not driver.CudaError("call", "CUDA_ERROR_OUT_OF_MEMORY").sticky
    assert driver.CudaError("call", LOST).sticky
    assert driver.CudaError("call", "CUDA_ERROR_UNKNOWN").sticky
