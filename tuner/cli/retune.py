"""`gemmtune retune`: measures bests again after a new driver, compiler, library, kernel or model."""

from __future__ import annotations

import math
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Annotated, Any, Final

import typer

from space.devices import DEFAULT_DEVICE
from tuner.cli.options import AUTO, Db, Device, Json, existing_store
from tuner.cli.output import console, emit, notes
from tuner.cli.replayed import word_for
from tuner.cli.tune import say_device
from tuner.evidence.records import Best
from tuner.evidence.store import Store
from tuner.exits import EXIT_NOTHING
from tuner.settings import settings
from tuner.studying.guidance import Guidance, guidance_for
from tuner.studying.open_worker import driver_present, open_worker
from tuner.studying.records import Budget
from tuner.studying.retune import Retuned, Stale, compare
from tuner.studying.retune import retune as measure_again
from workers.ports import Worker

_AGAIN: Final = "without --stale a rerun begins with the slowest again, so give more --seconds"


def retune(
    stale: Annotated[bool, typer.Option("--stale", help="Only bests that are stale, as said above.")] = False,
    device: Device = "auto",
    candidates: Annotated[int, typer.Option(min=1, help="Candidates to measure for each problem.")] = 48,
    seconds: Annotated[float | None, typer.Option(min=0, help="Begin no problem after this many seconds.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List them; measure nothing.")] = False,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Measures bests again, and says which winners moved and by how much.

    A best is stale if its kernel text, NVRTC, driver or cuBLASLt has changed, if a newer rule forbids its config, if
    its build was found wrong, or if the learned model expects an untried config to be faster. One that the library won
    is stale if any of our kernels has changed. Bests under other policies than the served one count too, unless today's
    program has run on their problem.

    The slowest problems come first. Exits with 6 if one could not be measured: its old best stays served, marked stale.
    """
    ends = time.monotonic() + (math.inf if seconds is None else seconds)
    listed, done, of = list[tuple[Worker, Guidance, list[Stale]]](), list[Retuned](), 0
    with existing_store(db) as store, ExitStack() as opened:
        for worker, bests in _workers(store, device, opened):
            ours = [best for best in bests if best.device_kind == worker.facts.kind]
            guidance = guidance_for(worker.facts.name, settings().model_dir)
            of += sum(best.served for best in ours)
            compared = compare(store, worker, ours, guidance.model_of(worker.facts.name))
            chosen = sorted((one for one in compared if one.changes or not stale), key=lambda one: -one.best.median_us)
            listed.append((worker, guidance, chosen))
        _say_left_out(store.devices(), [(worker.facts.name, worker.facts.kind) for worker, *_ in listed])
        total = sum(len(chosen) for *_, chosen in listed)
        for worker, guidance, chosen in () if dry_run else listed:
            for again in measure_again(store, worker, chosen, Budget(candidates), guidance, ends - time.monotonic()):
                done.append(again)
                notes.print(f"{len(done)}/{total}  {_line(again)}")
    if dry_run:
        _show_stale([one for *_, chosen in listed for one in chosen], of, as_json)
        return
    if not (total or done or as_json):
        why = f"none of {of} bests is stale" if of else "the store has no best of this device"
        console.print(f"nothing is measured again: {why}")
        return
    _show_retuned(done, total - len(done), as_json, "rerun to go on" if stale else _AGAIN)
    if any(each.best is None for each in done):
        raise typer.Exit(EXIT_NOTHING)


def _workers(store: Store, device: str, opened: ExitStack) -> Iterator[tuple[Worker, Sequence[Best]]]:
    """The worker that the device names, with the device's bests; without a GPU, a worker for each recording from which
    problems of bests are answered, with these.
    """
    answered = defaultdict[str, list[Best]](list)
    if device == AUTO and not driver_present():
        for best in store.bests_by_policy(DEFAULT_DEVICE):
            answered[word_for(device, best.problem)].append(best)
    for place, word in enumerate(answered or [device]):
        worker = opened.enter_context(open_worker(word, settings()))
        if not place:
            say_device(worker.facts)
        yield worker, answered[word] if answered else store.bests_by_policy(worker.facts.name)


def _say_left_out(stored: Sequence[tuple[str, str]], compared: Sequence[tuple[str, str]]) -> None:
    """Says of which devices the store has bests that nothing here compares: they may be stale, and are in no count."""
    for name, kind in stored:
        if (name, kind) in compared:
            continue
        if kind == "cuda":
            measured, compares = "measured on a GPU", f"only a machine with an {name}"
        else:
            measured, compares = "replayed", f"--device with a recording of an {name}"
        notes.print(f"left out: bests of {name} that were {measured}; {compares} compares them")


def _show_stale(chosen: Sequence[Stale], of: int, as_json: bool) -> None:
    if as_json:
        emit({"bests": of, "stale": [_stale_document(each) for each in chosen]})
        return
    for each in chosen:
        of_policy = "" if each.best.served else f" under {each.best.policy.value}"
        console.print(f"{each.best.problem.title}  {each.best.median_us:.2f} µs{of_policy}: {_changes_of(each)}")
    console.print(f"{len(chosen)} of {of} bests would be measured again")


def _show_retuned(done: Sequence[Retuned], left: int, as_json: bool, go_on: str) -> None:
    moved, failed = [each for each in done if each.moved], sum(each.best is None for each in done)
    # One that the store does not take changes no answer, and gains nothing.
    unserved = sum(not each.stands for each in moved)
    gains = [each.gain for each in moved if each.gain and each.stands]
    mean = statistics.geometric_mean(gains) if gains else None
    if as_json:
        emit({"left": left, "moved": len(moved), "failed": failed, "mean_gain": mean,
              "retuned": [_document(each) for each in done]})  # fmt: skip
        return
    console.print(
        f"{len(moved)} of {len(done) - failed} winners moved"
        + (f", {unserved} of them to a config that is not served" if unserved else "")
        + (f"; {failed} could not be measured" if failed else "")
        + (f"; {left} are left: {go_on}" if left else "")
    )
    if mean:
        console.print(
            f"the new winners are {mean:.3f} times as fast as the old ones are today (geometric mean of {len(gains)}; "
            f"{min(gains):.3f} to {max(gains):.3f})"
        )


def _line(again: Retuned) -> str:
    old, title = again.stale.best, again.stale.best.problem.title
    if again.best is None:
        return f"{title}: not measured: {again.why}"
    then = "" if again.best.policy is old.policy else f" ({old.policy.value})"
    times = f"{old.median_us:.2f} µs then{then}, {again.best.median_us:.2f} µs now ({again.best.policy.value})"
    gain = f", {again.gain:.3f} times as fast as the old winner today" if again.gain else ""
    stands = "" if again.stands else f"; {again.why}"
    return f"{title}: {f'now {again.best.config.key}{gain}' if again.moved else 'the same winner'}, {times}{stands}"


def _changes_of(stale: Stale) -> str:
    return "; ".join(stale.changes) or "nothing has changed"


def _stale_document(stale: Stale) -> dict[str, Any]:
    best = stale.best
    return {
        "problem": best.problem.document(), "device": best.device, "policy": best.policy, "config": best.config.key,
        "median_us": best.median_us, "changes": stale.changes,
    }  # fmt: skip


def _document(again: Retuned) -> dict[str, Any]:
    best, old_now = again.best, again.old_now
    return _stale_document(again.stale) | {
        "moved": again.moved, "gain": again.gain, "old_now_us": old_now.median_us if old_now else None,
        "served": again.stands, "why": again.why, "new_config": best.config.key if best else None,
        "new_median_us": best.median_us if best else None, "new_policy": best.policy if best else None,
    }  # fmt: skip
