"""`gemmtune ladder`: the best configs of one weight at every M, and cliffs between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from space.problem import Problem
from tuner.answering.answers import MEASURED, Bests, ExactBests
from tuner.answering.ladder import MS
from tuner.cli.options import AUTO, Db, DeviceName, Json, opened_bests, same_place
from tuner.cli.output import console, emit, table
from tuner.cli.problem_options import asks_weight
from tuner.cli.replays import print_replays
from tuner.evidence.picks import LIBRARY
from tuner.hints import tune_command
from tuner.prediction.files import model_for
from tuner.settings import settings
from tuner.tables.entries import fields
from tuner.tables.problems import rows_of
from tuner.tables.recorded import recorded_bests
from tuner.views import ladder as views
from tuner.views.ladder import Ladder, RungFacts


@asks_weight
def ladder(
    problem: Problem,
    ms: Annotated[
        str, typer.Option("--m", help="M, as in 1..8192:x2 or 1,16,64. \\[default: 25 from 1 to 16384]")
    ] = "",
    device: DeviceName = AUTO,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Prints the best config for every M of one weight, and finds measurements that contradict each other.

    A smaller M never takes longer than a larger one, because padding computes it with the larger one's kernel. A larger
    M never takes longer than repeating a smaller one. If measurements contradict this, the command lists the configs to
    measure again.
    """
    model = model_for(device, settings().model_dir).model
    recordings = recorded_bests(settings().recorded_dir)
    with opened_bests(db) as bests:
        found = views.ladder(bests, problem, device, rows_of(ms) if ms else MS, model, recordings)
        notes = _notes(found, problem, device, bests, recordings)
    if as_json:
        emit({
            "rungs": [{name: value for name, value in fields(each).items() if name not in ("problem", "roofline_us")}
                      for each in found.rungs],
            "cliffs": found.cliffs,
        })  # fmt: skip
        return
    rows = [
        (each.m, f"{each.source}{' (replay)' if each.replayed else ''}", f"{each.time_us:.2f}" if each.time_us else "–",
         f"{each.tflops:.0f}" if each.tflops else "–", _changed(each, above, found.varied))
        for each, above in zip(found.rungs, (None, *found.rungs), strict=False)
    ]  # fmt: skip
    table(("M", "source", "µs", "TFLOP/s", "knobs that changed from the row above"), rows)
    print_replays(notes, device)
    for cliff in found.cliffs:
        problem_of_cliff = problem.resized(cliff.m, *problem.extents[1:])
        console.print(f"contradiction: {cliff.sentence}; measure again with {len(cliff.again)} configs: "
                      f"{tune_command(problem_of_cliff)}{same_place(db)}")  # fmt: skip
    known = sum(each.source == "measured" for each in found.rungs)
    if known and not found.cliffs:
        console.print(f"no measurement contradicts another, of {known} that are measured")


def _notes(found: Ladder, weight: Problem, device: str, bests: Bests, recordings: ExactBests) -> dict[Problem, str]:
    """The notes of the rungs that were measured or recorded."""
    asked = (weight.resized(rung.m, *weight.extents[1:]) for rung in found.rungs if rung.source in MEASURED)
    known = ((problem, bests.best(problem, device) or recordings.best(problem, device)) for problem in asked)
    return {problem: best.winner.measurement.note for problem, best in known if best}


def _changed(rung: RungFacts, above: RungFacts | None, varied: Sequence[str]) -> str:
    """What tells a config from the one above it: where the family is another, its name and all that varies."""
    config, before = rung.config, above.config if above else None
    if config is None:
        return "–"
    if before is None or before.family != config.family:
        # The library's knobs are numbers of its own enums.
        told = () if config.family == LIBRARY else varied
        return ", ".join([config.family, *(f"{name}={value}" for name, value in config.values if name in told)])
    if config.family == LIBRARY:
        return ""
    return ", ".join(f"{name}={value}" for name, value in config.values if name in varied and before[name] != value)
