"""`gemmtune best`: the best known config from any source."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import typer

from space.devices import DEFAULT_DEVICE
from space.problem import Problem
from tuner.answering.answers import answer, policy_of
from tuner.cli.options import Db, DeviceName, Json, open_store
from tuner.cli.output import best_json, console, emit, ratio_text, show
from tuner.cli.problem_options import asks_problem
from tuner.evidence.records import BestChange, Policy
from tuner.hints import tune_command
from tuner.prediction.files import model_for
from tuner.settings import settings
from tuner.tables.entries import fields

AskedPolicy: TypeAlias = Annotated[
    Policy | None, typer.Option(help="What the time is to stand for. Default: what decides what is served.")
]
Neighbours: TypeAlias = Annotated[
    Literal["plain", "pdl"],
    typer.Option(help="Whether the kernels around it use programmatic dependent launch (pdl)."),
]


@asks_problem
def best(
    problem: Problem,
    device: DeviceName = DEFAULT_DEVICE,
    policy: AskedPolicy = None,
    neighbours: Neighbours = "plain",
    history: Annotated[bool, typer.Option("--history", help="List every change of the best instead.")] = False,
    rollback: Annotated[
        int | None, typer.Option(metavar="CHANGE", min=1, help="Undo a change: what was best before it is best again.")
    ] = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Prints the best known config: measured, else nearest, else predicted, else default, and says which."""
    asked = policy_of(policy, neighbours)
    if history or rollback:
        with open_store(db) as store:
            if rollback:
                store.roll_back(problem, device, rollback)
            show({"changes": store.best_changes(problem, device)}, as_json, _show_changes)
        return
    with open_store(db) as store:
        found = answer(store, problem, device, asked, model_for(device, settings().model_dir).model)
    if as_json:
        document = fields(found) | {"tflops": found.tflops, "evidence": best_json(found.best) if found.best else None}
        del document["best"]
        emit(document)
        return
    console.print(f"{found.source}: {found.why}")
    if found.config:
        console.print(f"  {found.config.family}: {found.config.knobs_text}")
    if found.time_us and found.tflops:
        word = "" if found.source == "measured" else "estimated "
        between = f" ({found.interval_us[0]:.2f} to {found.interval_us[1]:.2f})" if found.interval_us else ""
        console.print(f"  {word}{found.time_us:.2f} µs{between}, {found.tflops:.1f} TFLOP/s")
    if found.best and found.source == "measured":
        console.print(f"  against cuBLASLt's first choice     {ratio_text(found.best.versus_first)}")
        console.print(f"  against the best of its candidates  {ratio_text(found.best.versus_best)}")
    for ground in found.grounds:
        console.print(f"  {ground}")
    if found.source != "measured" and found.config:
        console.print(f"  to measure it: {tune_command(problem)}")


def _show_changes(found: dict[str, list[BestChange]]) -> None:
    for each in found["changes"]:
        time = f"{each.median_us:.6g} µs" if each.median_us else "none"
        console.print(f"{each.id}  {each.at:%Y-%m-%d %H:%M} UTC  {each.policy.value}  {time}: {each.reason}")
        if each.config_key:
            console.print(f"   {each.config_key}")
