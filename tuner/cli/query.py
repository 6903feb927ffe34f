"""`gemmtune best`: the best known config from any source."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Literal, TypeAlias

import typer

from space.devices import profile_named
from space.errors import ConfigError
from space.problem import Problem
from tuner.answering.answers import MEASURED, Answer, answer, known_answer, policy_of
from tuner.answering.rivals import Finals, finals_of
from tuner.cli.options import (
    AUTO,
    MOST_NUMBER,
    Db,
    DeviceName,
    Json,
    existing_store,
    opened_bests,
    same_place,
    tuned_there,
)
from tuner.cli.output import console, emit, print_comparison
from tuner.cli.problem_options import asks_problem
from tuner.counts import counted
from tuner.evidence.records import BestChange, Policy
from tuner.evidence.stats import median_interval_us
from tuner.hints import tune_command
from tuner.prediction.files import model_for
from tuner.settings import settings
from tuner.tables.answer_document import document
from tuner.tables.recorded import recorded_bests
from workers.measurement import NO_ENERGY

AskedPolicy: TypeAlias = Annotated[
    Policy | None, typer.Option(help="Timing policy. \\[default: the one that decides what is served]")
]
Neighbours: TypeAlias = Annotated[
    Literal["plain", "pdl"],
    typer.Option(help="Kernels before and after the product: plain, or pdl (programmatic dependent launch)."),
]


@asks_problem
def best(
    problem: Problem,
    device: DeviceName = AUTO,
    policy: AskedPolicy = None,
    neighbours: Neighbours = "plain",
    history: Annotated[bool, typer.Option("--history", help="List every change to the best instead.")] = False,
    rollback: Annotated[
        int | None,
        typer.Option(
            metavar="CHANGE", min=1, max=MOST_NUMBER, help="Undo a change: restore the best that it replaced."
        ),
    ] = None,
    rivals: Annotated[
        bool, typer.Option("--rivals", help="List the finals behind the best instead; --json adds their samples.")
    ] = False,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Prints the best known config and its source: measured, recorded, nearest or predicted."""
    asked = policy_of(policy, neighbours)
    if (history or rollback) and (rivals or asked):
        others = "--rivals, --policy and --neighbours"
        raise ConfigError(f"--history and --rollback are of changes under every policy: leave out {others}")
    if rivals:
        with existing_store(db) as store, tuned_there(db):
            finals = finals_of(store, problem, device, asked)
        _show_rivals(finals, as_json)
        return
    if history or rollback:
        with existing_store(db) as store:
            if rollback:
                store.roll_back(problem, device, rollback)
            changes = store.best_changes(problem, device)
        _show_changes(changes, problem, device, db, as_json)
        return
    config = settings()
    with opened_bests(db) as bests:
        # Reading recordings and the learned model takes a tenth of the whole command.
        found = (
            known_answer(bests, problem, device, asked)
            or known_answer(bests, problem, device, asked, recordings := recorded_bests(config.recorded_dir))
            or answer(bests, problem, device, asked, model_for(device, config.model_dir).model, recordings)
        )
    if as_json:
        emit(document(found))
    else:
        _show_answer(found, db)


def _show_answer(found: Answer, db: str | None) -> None:
    console.print(f"{found.source}: {found.why}")
    if found.config:
        console.print(f"  {found.config.family}: {found.config.knobs_text}")
    if found.time_us and found.tflops:
        # The reason names the policy of what was measured for the very problem.
        word, under = ("", "") if found.source in MEASURED else ("estimated ", f" under {found.policy.value}")
        between = f" ({found.interval_us[0]:.2f} to {found.interval_us[1]:.2f})" if found.interval_us else ""
        console.print(f"  {word}{found.time_us:.2f} µs{between}{under}, {found.tflops:.1f} TFLOP/s")
    if found.best and found.source in MEASURED:
        print_comparison(found.best)
        # That of a replay is among the grounds.
        if (note := found.best.winner.measurement.note) and note not in found.grounds:
            console.print(f"  {note}")
    for ground in found.grounds:
        console.print(f"  {ground}")
    if found.source != "measured" and found.config:
        console.print(f"  to measure it{elsewhere(found.device)}: {tune_command(found.problem)}{same_place(db)}")


def elsewhere(device: str) -> str:
    """Where `gemmtune tune` measures a GPU model, unless it does so here; without a GPU it replays recordings."""
    # A machine with the GPU has asked its driver already, for `--device`.
    from tuner.studying.open_worker import device_here, driver_present
    from workers.errors import WorkerError

    with suppress(WorkerError):
        if driver_present() and device_here() == device:
            return ""
    return f", on a machine with an {device}"


def _show_rivals(found: Finals, as_json: bool) -> None:
    rivals = [(each.id, each.measurement) for each in found.rivals]
    if as_json:
        names = ("config", "policy", "median_us", "samples_us", "clocks", "note")
        emit({"rivals": [{"measurement_id": number} | {name: getattr(one, name) for name in names}
                         | {"product_joules": found.joules.get(one.config)} for number, one in rivals]})  # fmt: skip
        return
    policy, won = found.best.policy.value, found.best.winner.id
    place = "is served" if found.best.served else f"is the best under {policy}, which is not the served one"
    which = "*" if won in dict(rivals) else f"their winner, measurement {won},"
    console.print(f"finals under {policy}, fastest first, turn by turn; {which} {found.out or place}")
    for number, one in rivals:
        low, high = median_interval_us(one, found.best.device)
        mark, count = "*" if number == won else " ", counted(len(one.samples_us), "sample")
        joules = f", {found.joules[one.config]:.4g} J" if one.config in found.joules else ""
        console.print(f"{mark} {one.median_us:.2f} µs ({low:.2f} to {high:.2f}, {count}){joules}  {one.config.key}")
    if found.uncounted:
        console.print(NO_ENERGY)
    if found.today:
        then = "of the others" if found.out else "* was picked by an earlier version's rule;"
        console.print(f"{then} today's picks {found.today.measurement.config.key}")
    if found.best.device_kind == "recorded":
        console.print("times are replayed from a recording; no GPU was used")


def _show_changes(changes: list[BestChange], problem: Problem, device: str, db: str | None, as_json: bool) -> None:
    if not changes:
        # A name that no card has never had one; the error names the cards that it may mean.
        profile_named(device)
    if as_json:
        emit({"changes": changes})
        return
    if not changes:
        console.print(f"{problem.title} never had a best on {device}: run `{tune_command(problem)}{same_place(db)}`")
    for each in changes:
        time = f"{each.median_us:.6g} µs" if each.median_us else "none"
        console.print(f"{each.id}  {each.at:%Y-%m-%d %H:%M} UTC  {each.policy.value}  {time}: {each.reason}")
        if each.config_key:
            console.print(f"   {each.config_key}")
