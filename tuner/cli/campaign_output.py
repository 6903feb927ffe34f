"""Output of `gemmtune campaign` and `gemmtune worker`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from space.kind import problem_from_key
from tuner.cli.live import live_line
from tuner.cli.output import console, notes, table
from tuner.cli.replays import print_replays
from tuner.counts import counted
from tuner.evidence.picks import LIBRARY

Document = dict[str, Any]
NO_WORKER: Final = "no live worker can take it now"


@contextmanager
def watching(quiet: bool) -> Iterator[Callable[[Document], None]]:
    """Yields a function that shows progress: in a live line on a terminal, in a plain line per change elsewhere."""
    shown: object = None

    def show(progress: Document) -> None:
        nonlocal shown
        before, shown = shown, progress["problems"]
        say(progress_line(progress), shown != before)

    with live_line(quiet) as say:
        yield show


def progress_line(progress: Document) -> str:
    """`campaign 3 running · 12/24 problems ended · …`."""
    found, campaign = progress["problems"], progress["campaign"]
    ended = sum(found[status] for status in ("done", "parked", "skipped"))
    parts = [f"campaign {campaign['id']} {campaign['status']}", f"{ended}/{sum(found.values())} problems ended"]
    if found["parked"]:
        parts.append(f"{found['parked']} parked")
    parts.append(counted(progress["tried"], "candidate"))
    parts.append(f"workers {progress['workers']}, rounds running {progress['rounds_running']}")
    if progress["candidates_a_second"]:
        parts.append(f"{progress['candidates_a_second']:.1f} candidates/s")
    if progress["seconds_left"]:
        parts.append(f"about {duration(progress['seconds_left'])} left")
    return " · ".join(parts)


def created(campaign: Document, there: str) -> None:
    """A campaign that was created or changed; `there` is `same_place` of the command."""
    console.print(f"campaign {campaign['id']}: {campaign['name']}, {campaign['status']}")
    if campaign["status"] == "running":
        console.print(f"  to watch it: gemmtune campaign watch {campaign['id']}{there}")


def who_takes_it(cost: Document, devices: Sequence[tuple[str, str]], there: str) -> None:
    """Says at once that problems will be parked, or that no live worker takes a new campaign's rounds."""
    if cost["untunable"]:
        notes.print(f"{_problems(len(cost['untunable']))} will be parked: --dry-run lists them with the reasons")
    if not cost["workers"]:
        asked = " or ".join(f"{'recorded:' if kind == 'recorded' else ''}{name}" for name, kind in devices)
        live = f"`gemmtune worker list{there}` shows those that are live"
        notes.print(f"{NO_WORKER}: it waits for a worker of {asked}; {live}")
        for name in (name for name, kind in devices if kind != "recorded"):
            notes.print(f"recorded workers take only campaigns for --device 'recorded:{name}'")


def campaigns(document: Document) -> None:
    rows = [
        (entry["id"], entry["name"], entry["status"], entry["priority"], entry["created_at"][:16],
         entry["stopped_because"])
        for entry in document["campaigns"]
    ]  # fmt: skip
    table(("id", "name", "status", "priority", "created (UTC)", "why it ended"), rows)


def summary(document: Document) -> None:
    """A campaign's progress and results."""
    progress, gain = document["progress"], document["gain"]
    campaign = progress["campaign"]
    console.print(f"campaign {campaign['id']}: {campaign['name']}")
    why = campaign["stopped_because"]
    ended = f" ({why})" if why and why != campaign["status"] else ""
    console.print(f"  {campaign['status']}{ended}; problems: {_counts(progress['problems'])}")
    # A recorded worker is charged its time too, and uses no GPU.
    whose = "workers' time" if document["replayed"] else "GPU time"
    console.print(f"  {counted(progress['tried'], 'candidate')}, {duration(progress['gpu_seconds'])} of {whose}")
    # Older services don't say it.
    revoked = document.get("revoked", 0)
    if gain:
        console.print(
            f"  against cuBLASLt's first choice: {gain['geometric_mean']:.3f} times as fast (geometric mean of "
            f"{gain['problems']}, {gain['least']:.3f} to {gain['most']:.3f}); {gain['faster']} faster, "
            f"{gain['tied']} tied, {gain['slower']} slower"
        )  # fmt: skip
    elif revoked and not document["library_won"]:
        console.print("  against cuBLASLt's first choice: no comparison is left")
    elif document["library_won"]:
        console.print("  against cuBLASLt's first choice: none of our kernels won")
    else:
        console.print("  against cuBLASLt's first choice: no comparison yet")
    if document["library_won"]:
        count = document["library_won"]
        console.print(f"  cuBLASLt's own candidates won {_problems(count)}; no number above counts these as ours")
    if revoked:
        console.print(f"  winners of {_problems(revoked)} were revoked; no gain counts these")
    if document["replayed"]:
        console.print(f"  times of {_problems(document['replayed'])} are replayed from recordings; no GPU was used")
    if won := document["won"]:
        before, after = duration_us(won["library_us"]), duration_us(won["ours_us"])
        console.print(
            f"  saved {won['share']:.1%} of the program's GEMM time over {_problems(won['problems'])}, weighted by "
            f"their counts: {before} with cuBLASLt's first choices, {after} now"
        )
    console.print(f"  candidates that failed: {_counts(document['failed']) or 'none'}")
    for reason, count in document["parked"].items():
        console.print(f"  parked: {count} × {reason}")


def replays(entries: Sequence[Document]) -> None:
    """Prints where the replayed times of a campaign's problems come from."""
    for device in sorted({entry["device"] for entry in entries}):
        notes_of = {problem_from_key(entry["problem"]["key"]): entry["note"] for entry in entries
                    if entry["device"] == device}  # fmt: skip
        print_replays(notes_of, device)


def results(document: Document) -> None:
    """A campaign's problems."""
    rows = []
    for entry in document["problems"]:
        problem, versus = problem_from_key(entry["problem"]["key"]), entry["versus_cublaslt_first"]
        library = entry["config_key"].startswith(f"{LIBRARY}:")
        replay = " (replay)" if entry["device_kind"] == "recorded" else ""
        rows.append(
            (
                problem.title, entry["device"] + replay, entry["status"], entry["tried"],
                f"{entry['median_us']:.2f}" if entry["median_us"] else "–",
                f"{entry['tflops']:.1f}" if entry["tflops"] else "–",
                "revoked" if entry.get("revoked") else _versus(versus, library),
                "" if entry["status"] == "done" else entry["reason"],
            )
        )  # fmt: skip
    columns = ("problem", "device", "status", "tried", "µs", "TFLOP/s", "vs cuBLASLt", "why not done")
    # Leaves out the column of reasons if it is empty.
    shown = len(columns) - (not any(row[-1] for row in rows))
    table(columns[:shown], [row[:shown] for row in rows])
    replays(document["problems"])
    notes.print("configs: --json, or `gemmtune best` for one problem")


def _versus(ratio: Document | None, library: bool) -> str:
    if library:
        return "library won"
    return f"{ratio['value']:.3f}" if ratio else "–"


def _problems(count: int) -> str:
    return counted(count, "problem")


def estimate(document: Document) -> None:
    """What a campaign would cost."""
    found = document
    console.print(f"{_problems(found['problems'])} on {counted(found['devices'], 'device model')}, at most "
                  f"{counted(found['most_candidates'], 'candidate')}")  # fmt: skip
    console.print(f"  GPU time: about {duration(found['gpu_seconds'])}, at {found['seconds_a_candidate']:.3f} s a "
                  f"candidate and {found['seconds_a_problem']:.1f} s a problem ({found['rate_source']})")  # fmt: skip
    if found["seconds"] is None:
        console.print(f"  {'a device model has no live worker' if found['workers'] else NO_WORKER}")
    else:
        live = counted(found["workers"], "live worker")
        console.print(f"  with {live} that can take it: about {duration(found['seconds'])}")
    for entry in found["untunable"]:
        console.print(f"  will be parked: {entry['problem']} ({entry['rules']})")
    if found["looked_at"] < found["problems"]:
        console.print(f"  examined in detail: {_problems(found['looked_at'])}")
    console.print("  no campaign was created: leave out --dry-run to create it")


def workers(document: Document) -> None:
    rows = [
        (entry["id"], entry["name"], entry["device"], entry["device_kind"], entry["status"], entry["round_id"] or "–",
         entry["rounds"], f"{entry['busy_seconds']:.0f}", entry["beat_at"][11:19])
        for entry in document["workers"]
    ]  # fmt: skip
    table(("id", "name", "device", "kind", "status", "round", "rounds", "busy s", "last heartbeat (UTC)"), rows)


def duration(seconds: float) -> str:
    """`48 s`, `12 min`, `3.5 h`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3_600:.1f} h"


def duration_us(time_us: float) -> str:
    """`48.0 µs`, `12.0 ms`, `3.5 s`."""
    if time_us < 1_000:
        return f"{time_us:.1f} µs"
    return f"{time_us / 1e3:.1f} ms" if time_us < 1e6 else f"{time_us / 1e6:.1f} s"


def _counts(found: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in found.items() if count)
