"""`gemmtune why`: the deciding knobs, the cost of each single change of the winner, and the runners-up."""

from __future__ import annotations

import dataclasses
from typing import Any

from space.devices import DEFAULT_DEVICE
from space.problem import Problem
from tuner.answering import importance
from tuner.answering.importance import Change, Why
from tuner.cli.options import Db, DeviceName, Json, open_store
from tuner.cli.output import config_json, console, emit, problem_json, table
from tuner.cli.problem_options import asks_problem
from tuner.prediction.files import model_for
from tuner.settings import settings


@asks_problem
def why(
    problem: Problem,
    device: DeviceName = DEFAULT_DEVICE,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Explains why a tuned problem's winner won, from the measurements in the store."""
    with open_store(db) as store:
        found = importance.why(store, problem, device, model=model_for(device, settings().model_dir).model)
    if as_json:
        emit(why_json(found))
    else:
        _print(found)


def why_json(found: Why) -> dict[str, Any]:
    """An explanation as JSON."""
    return {
        "problem": problem_json(found.problem), "device": found.device, "winner": config_json(found.winner),
        "time_us": found.time_us, "measured": found.measured,
        "importances": [dataclasses.asdict(each) for each in found.importances],
        "changes": [dataclasses.asdict(each) for each in found.changes],
        "runners_up": [
            {"config": config_json(each.config), "time_us": each.time_us, "ratio": each.ratio}
            for each in found.runners_up
        ],
    }  # fmt: skip


def _print(found: Why) -> None:
    problem = found.problem
    console.print(
        f"{problem.title} on {found.device}: {found.measured} correct candidates, the "
        f"fastest takes {found.time_us:.2f} µs"
    )
    console.print(f"  {found.winner.key}", markup=False)
    rows = [
        (each.knob, str(found.winner[each.knob]), f"{each.share:.0%}", f"{each.cost - 1:+.1%}" if each.cost else "–")
        for each in found.importances
    ]
    table(("knob", "winner's", "importance", "best of any other value"), rows)
    table(("one change", "costs", ""), [_line(change) for change in found.changes if change.source != "illegal"])
    illegal = sum(change.source == "illegal" for change in found.changes)
    console.print(f"{illegal} other single changes are illegal; `gemmtune explain` says why")
    table(
        ("fastest of another structure", "costs"),
        [(each.config.knobs_text, f"{each.ratio - 1:+.1%}") for each in found.runners_up],
    )


def _line(change: Change) -> tuple[str, str, str]:
    assert change.ratio is not None
    assert change.low is not None
    assert change.high is not None
    said = "measured" if change.source == "measured" else f"expected, {change.low - 1:+.1%} to {change.high - 1:+.1%}"
    return f"{change.knob}={change.value}", f"{change.ratio - 1:+.1%}", said
