"""Tuning: the shapes that a program multiplies, tuned within a budget of wall time and exported as tables."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from space.devices import profile_named
from space.problem import Problem
from tuner.errors import TunerError
from tuner.evidence.store import Store
from tuner.files import export_file
from tuner.settings import database_url, settings
from tuner.studying.guidance import guidance_for
from tuner.studying.open_worker import open_worker
from tuner.studying.study import Budget, tune
from tuner.tables.exporters import json_table
from tuner.tables.exporters.guard import Guarded, guarded
from tuner.tables.exporters.options import ExportOptions
from tuner.tables.shapes import Shapes, weighted
from tuner.tables.tables import table
from workers.errors import WorkerError


@dataclass(frozen=True, slots=True)
class Plan:
    """How shapes are tuned.

    Attributes:
        db: the store, which is kept; problems that it has are resumed.
        devices: words of `gemmtune tune --device`, each used by a thread of its own.
        seconds: wall time after which no further problem is begun.
        candidates, screening_seconds, turns: budget of each problem.
    """

    db: Path
    devices: Sequence[str]
    seconds: float
    candidates: int
    screening_seconds: float
    turns: int


@dataclass
class Tuned:
    """What was tuned.

    Attributes:
        device: GPU model.
        count, known: problems that were tuned, and those that the store had.
        skipped: why problems have no best.
        lost: why devices tune no more, by their words.
    """

    device: str = ""
    seconds: float = 0.0
    count: int = 0
    skipped: dict[str, str] = field(default_factory=dict)
    known: int = 0
    lost: dict[str, str] = field(default_factory=dict)


def in_order(phases: Sequence[Shapes], device: str) -> list[Problem]:
    """The problems of all phases of all blocks, the largest share of its own phase's roofline time first."""
    profile = profile_named(device)
    shares: dict[Problem, float] = {}
    for shapes in phases:
        for each in weighted(shapes, profile):
            shares[each.problem] = max(each.share, shares.get(each.problem, 0.0))
    return sorted(shares, key=lambda problem: -shares[problem])


def tuned(phases: Sequence[Shapes], device: str, plan: Plan) -> Tuned:
    """Tunes as many problems as the budget allows."""
    problems = in_order(phases, device)
    waiting: SimpleQueue[Problem] = SimpleQueue()
    for problem in problems:
        waiting.put(problem)
    made, begun = Tuned(device), time.monotonic()
    budget = Budget(plan.candidates, plan.screening_seconds, plan.turns)
    with Store.open(database_url(str(plan.db))) as store:
        threads = [
            threading.Thread(target=_work, args=(store, word, waiting, budget, plan.seconds, made))
            for word in plan.devices
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    made.seconds = time.monotonic() - begun
    spent = f"the budget of {plan.seconds:g} s was spent"
    if len(made.lost) == len(plan.devices):
        spent = "; ".join(f"{word}: {why}" for word, why in made.lost.items())
    while not waiting.empty():
        made.skipped[waiting.get().title] = spent
    return made


def _work(
    store: Store, word: str, waiting: SimpleQueue[Problem], budget: Budget, seconds: float, made: Tuned
) -> None:  # fmt: skip
    try:
        with open_worker(word, settings()) as worker:
            made.device = worker.facts.name
            guidance, until = guidance_for(worker.facts.name, settings().model_dir), time.monotonic() + seconds
            while time.monotonic() < until:
                problem = waiting.get_nowait()
                begun, known = time.monotonic(), store.best(problem, worker.facts.name) is not None
                try:
                    report = tune(store, worker, problem, budget, guidance=guidance)
                except Exception as error:  # one product that fails is a line, not the end
                    made.skipped[problem.title] = f"{type(error).__name__}: {error}"
                    continue
                made.known += known
                made.count += not known
                versus = report.best.versus_first
                said = f"{versus.value:.3f} ({versus.low:.3f} to {versus.high:.3f})" if versus else "no library"
                print(f"tuned {problem.title}: {report.best.median_us:.1f} µs, {said}, {report.best.tried} tried, "
                      f"{time.monotonic() - begun:.1f} s: {report.best.config.key}", flush=True)  # fmt: skip
    except Empty:
        return
    except (TunerError, WorkerError) as error:
        made.lost[word] = str(error)
        print(f"{word}: {error}", flush=True)


def exported(db: Path, device: str, keys: set[str], min_gain: float) -> Guarded:
    """The guarded table of the problems with these keys.

    Raises:
        UnknownDevice: nothing was tuned.
    """
    with Store.open(database_url(str(db)), create=False) as store:
        return guarded(table(store, device), min_gain, keys)


def written(chosen: Guarded, path: Path, keys: Sequence[str] | None = None) -> Path:
    """The table as `gemmtune export --format json --min-gain` writes it, or only the entries with some keys."""
    document: Mapping[str, Any] = chosen.document
    part = guarded(document, chosen.min_gain, set(keys) if keys is not None else _keys(chosen))
    for name, content in json_table.files(part, ExportOptions(str(path))).items():
        export_file(Path(name), content)
    return path


def _keys(chosen: Guarded) -> set[str]:
    return {entry["problem"]["key"] for entry in chosen.entries}
