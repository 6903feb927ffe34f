"""`gemmtune ladder`: the best configs of one weight at every M, and cliffs between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from space.devices import DEFAULT_DEVICE
from space.errors import ProblemError
from space.problem import Problem
from tuner.answering.answers import Answer, answer
from tuner.answering.ladder import MS, Rung, cliffs, problems
from tuner.cli.options import Db, DeviceName, Json, open_store
from tuner.cli.output import console, emit, table
from tuner.cli.problem_options import asks_weight
from tuner.hints import tune_command
from tuner.prediction.files import model_for
from tuner.settings import settings


@asks_weight
def ladder(
    problem: Problem,
    ms: Annotated[str, typer.Option("--m", help="Comma-separated values of M. \\[default: 25 from 1 to 16384]")] = "",
    device: DeviceName = DEFAULT_DEVICE,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Prints the best config for every M of one weight, and finds measurements that contradict each other.

    A smaller M never takes longer than a larger one, whose kernel computes it with padding; a larger M never takes
    longer than repeating a smaller one. If measurements contradict this, the configs to measure again are listed.
    """
    rungs = problems(problem, _numbers(ms) if ms else MS)
    model = model_for(device, settings().model_dir).model
    with open_store(db) as store:
        answers = [answer(store, problem, device, model=model) for problem in rungs]
    known = [
        Rung(found.problem, found.config, found.time_us, found.best.runner_up if found.best else None)
        for found in answers if found.source == "measured" and found.config and found.time_us
    ]  # fmt: skip
    found = cliffs(known)
    if as_json:
        emit({
            "rungs": [
                {"m": each.problem.extents[0], "source": each.source, "time_us": each.time_us,
                 "interval_us": each.interval_us, "tflops": each.tflops, "config": each.config, "why": each.why}
                for each in answers
            ],
            "cliffs": [
                {"kind": cliff.kind, "m": cliff.suspect.problem.extents[0], "time_us": cliff.suspect.time_us,
                 "witness_m": cliff.witness.problem.extents[0], "bound_us": cliff.bound_us,
                 "sentence": cliff.sentence, "again": cliff.again}
                for cliff in found
            ],
        })  # fmt: skip
        return
    rows = [
        (each.problem.extents[0], each.source, f"{each.time_us:.2f}" if each.time_us else "–",
         f"{each.tflops:.0f}" if each.tflops else "–", _varied(each, answers))
        for each in answers
    ]  # fmt: skip
    table(("M", "source", "µs", "TFLOP/s", "knobs that differ along the ladder"), rows)
    for cliff in found:
        console.print(f"cliff: {cliff.sentence}; measure again with {len(cliff.again)} configs: "
                      f"{tune_command(cliff.suspect.problem)}")  # fmt: skip
    if known and not found:
        console.print(f"no cliffs among {len(known)} measured rungs")


def _varied(found: Answer, answers: Sequence[Answer]) -> str:
    if found.config is None:
        return "–"
    values: dict[str, set[object]] = {}
    for name, value in (pair for each in answers if each.config for pair in each.config.values):
        values.setdefault(name, set()).add(value)
    return ",".join(f"{name}={value}" for name, value in found.config.values if len(values[name]) > 1)


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise ProblemError(f"--m {text!r} is not a list of numbers: write 1,16,4096") from error
