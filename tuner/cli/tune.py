"""`gemmtune tune`: tunes one problem, with live progress."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from typing import Annotated, Any

import typer

from space.devices import DEFAULT_DEVICE, find_profile
from space.problem import Problem
from space.rank import roofline_us
from tuner.cli.live import live_line
from tuner.cli.options import Db, Device, Json, NoRule, is_there, open_store, same_place, store_url
from tuner.cli.output import best_json, console, emit, notes, print_comparison
from tuner.cli.problem_options import asks_problem
from tuner.cli.replayed import word_for
from tuner.evidence.database import in_memory
from tuner.evidence.picks import LIBRARY, ahead
from tuner.evidence.store import Store
from tuner.hints import flags_of
from tuner.settings import settings
from tuner.studying import study
from tuner.studying.candidates import candidates_for
from tuner.studying.guidance import guidance_for
from tuner.studying.open_worker import open_worker
from tuner.studying.study import Budget, Progress, Report
from workers.measurement import DeviceFacts
from workers.ports import Worker

#: Without a terminal, prints one line for this many candidates.
_LINE_EVERY = 8


@asks_problem
def tune(
    problem: Problem,
    device: Device = "auto",
    candidates: Annotated[int, typer.Option(help="Candidates to measure, including those of earlier runs.")] = 96,
    seconds: Annotated[float | None, typer.Option(help="Stop screening after this many seconds.")] = None,
    gain: Annotated[
        float | None, typer.Option(help="Stop screening once the expected gain falls below this, as in 0.01 for 1 %.")
    ] = None,
    turns: Annotated[int, typer.Option(help="Fewest turns where `chain` decides.")] = 30,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start over instead of resuming.")] = False,
    no_rule: NoRule = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Finds the fastest proved-correct config for one GEMM on one device and stores it.

    You can interrupt it at any time: the same command resumes where it stopped and measures nothing twice.
    """
    budget = Budget(candidates, seconds, turns, gain=gain)
    opened = open_worker(word_for(device, problem), settings())
    with opened as worker, _store_for(worker, problem, no_rule or (), db) as store:
        say_device(worker.facts)
        guidance = guidance_for(worker.facts.name, settings().model_dir)
        if not as_json:
            notes.print(f"expectations: {guidance.why}")
        with live_line(quiet=as_json) as say:
            report = study.tune(store, worker, problem, budget, fresh=fresh, guidance=guidance, without=no_rule or (),
                                watch=lambda progress: say(_line(problem, progress), _due(progress)))  # fmt: skip
        if as_json:
            emit(_report_json(report))
        else:
            _print_report(report, worker.facts, db)


def _store_for(worker: Worker, problem: Problem, without: Collection[str], db: str | None) -> Store:
    """The store, created only if the worker has candidates of the problem.

    Raises:
        NothingCorrect, FamilyError: it has none, or `without` names no worth rule.
    """
    if not is_there(store_url(db)):
        candidates_for(problem, worker, without)
    return open_store(db)


def say_device(facts: DeviceFacts) -> None:
    """Prints which device measures, or that times are replayed from a recording."""
    if facts.kind == "recorded":
        notes.print(f"device: recorded {facts.name}. No GPU is used: candidates are compiled here with NVRTC for "
                    f"{facts.arch}, their times are replayed from a recording of a real {facts.name}.")  # fmt: skip
    else:
        notes.print(f"device: {facts.name} ({facts.uuid}), driver {facts.driver}, {facts.arch}")


def _line(problem: Problem, progress: Progress) -> str:
    parts = [f"[{progress.seconds:5.1f} s] {progress.tried}/{progress.total} candidates"]
    if progress.resumed:
        parts.append(f"{progress.resumed} from earlier runs")
    parts.append("failed " + (", ".join(f"{n} {kind}" for kind, n in progress.failed.items()) or "none"))
    if progress.best:
        best_us = progress.best.median_us
        parts.append(f"best in screening {best_us:.1f} µs, {problem.tflops(best_us):.0f} TFLOP/s")
    if progress.phase == "finals":
        parts.append("finals: against cuBLASLt")
    elif progress.seconds_left is not None:
        parts.append(f"{progress.seconds_left:.0f} s left")
    return " · ".join(parts)


def _due(progress: Progress) -> bool:
    """Whether progress is worth a line of its own."""
    return progress.last is None or progress.tried % _LINE_EVERY == 0 or progress.tried == progress.total


def _print_report(report: Report, facts: DeviceFacts, db: str | None) -> None:
    best, out = report.best, console.print
    problem, measurement = best.problem, best.winner.measurement
    out()
    out(f"best config for {problem.title} on {'recorded ' if facts.kind == 'recorded' else ''}{facts.name}")
    out(f"  {best.config.family}: {best.config.knobs_text}")
    profile = find_profile(facts.name)
    share = f", {roofline_us(problem, profile) / best.median_us:.0%} of the roofline bound" if profile else ""
    if measurement.note:
        out(f"  {measurement.note}")
    out(f"  {best.median_us:.2f} µs, {best.tflops:.1f} TFLOP/s{share}")
    print_comparison(best)
    ours = [m for m in report.finals if m.config.family != LIBRARY and m.policy is best.policy]
    if best.config.family == LIBRARY and ours:
        own = ahead(ours)[0]
        out(f"  the fastest of ours takes {own.median_us:.2f} µs: {own.config.key}")
    if check := measurement.verification:
        out(f"  correct: all {check.elements:,} elements within the bound ({check.reference}), "
            f"largest error {check.worst_ratio:.2f} of it")  # fmt: skip
    shown = f"screening showed {report.screened_us:.2f} µs for it: " if report.screened_us else ""
    out(f"  {shown}screening times each candidate briefly, to rank them; finals time the leaders thoroughly "
        f"({best.policy.value}), and only their times count")  # fmt: skip
    out(f"  confidence: {report.chance:.0%} that no finalist is more than 2 % faster; {_tried(report, facts)}; "
        f"{report.stopped_because}")  # fmt: skip
    if outlook := report.outlook:
        out(f"  left: {outlook.chance:.0%} chance that an untried candidate is more than {outlook.margin:.0%} faster; "
            f"trying all of them is expected to gain {outlook.gain:.2%}")  # fmt: skip
    if best.failed:
        out("  failed: " + ", ".join(f"{count} {kind}" for kind, count in best.failed.items()))
    for remark in report.remarks:
        out(f"  {remark}")
    if facts.kind == "recorded":
        out("  times are replayed from a recording; no GPU was used")
    if profile is None:
        # A remark says so: nothing answers from it.
        return
    if in_memory(store_url(db)):
        out("  the store was in memory, and nothing of it is kept: name a file with --db")
        return
    there = same_place(db)
    # Another card answers a question without a device.
    foreign = facts.kind == "recorded" and facts.name != DEFAULT_DEVICE
    of_card = f" --device {shlex.quote(facts.name)}" if foreign else ""
    out()
    out("next:")
    out(f"  gemmtune best {problem.shape}{flags_of(problem)}{of_card}{there}")
    out(f"  gemmtune serve{there}")
    if facts.kind != "recorded":
        out(f"  gemmtune export --format json --out table.json{there}")


def _tried(report: Report, facts: DeviceFacts) -> str:
    if facts.kind == "recorded":
        return (f"{report.best.tried} of {report.candidates:,} recorded candidates were tried; "
                f"{report.worth_trying:,} are worth trying on a GPU")  # fmt: skip
    return f"{report.best.tried} of {report.candidates:,} candidates worth trying were tried"


def _report_json(report: Report) -> dict[str, Any]:
    return best_json(report.best) | {
        "chance_within_2_percent": report.chance,
        "candidates_worth_trying": report.worth_trying,
        "candidates_measurable": report.candidates,
        "screened_us": report.screened_us,
        "measured_by_this_run": report.new,
        "stopped_because": report.stopped_because,
        "remarks": report.remarks,
        "outlook": report.outlook,
        "seconds": report.seconds,
        "finals": [
            {"config": m.config.key, "median_us": m.median_us, "tflops": report.best.problem.tflops(m.median_us),
             "policy": m.policy.value, "samples_us": m.samples_us, "note": m.note}
            for m in report.finals
        ],
    }  # fmt: skip
