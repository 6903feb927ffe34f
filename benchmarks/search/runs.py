"""Runs: plans the missing ones in units that share expensive work, and executes them on all processors.

A model without a problem serves every strategy and seed that may use it, so a unit holds all runs with the same
training problems. A failed run is reported with its reason and does not affect the others.
"""

from __future__ import annotations

import json
import queue
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.command import reading
from benchmarks.search.child import Child, End, Plan
from benchmarks.search.setting import Setting
from benchmarks.search.strategies import FIXED, SPLITS
from tuner.prediction.examples import digest_of
from tuner.prediction.judge import MOST_FOLDS

#: Identity of a run: its strategy, its problem's data, its training data, and its seed.
Key = tuple[str, str, int]
Orders = dict[Key, list[int]]

#: Processor seconds of a run, and of a tree, on a Xeon of 2023; used only to estimate the remaining time.
USUAL_S: Final = {"random": 0.01, "analytic order": 0.01}
RUN_S, TREE_S = 0.15, 0.05


@dataclass(frozen=True)
class Asked:
    """One run: its problem's index among the recordings, and a key that changes with the data."""

    name: str
    place: int
    seed: int
    key: Key


@dataclass(frozen=True)
class Ended:
    """A run and how it ended."""

    asked: Asked
    end: End


def wanted(setting: Setting, names: Sequence[str], places: Sequence[int], seeds: int, most: int) -> list[Asked]:
    """Every run that the table needs, strategy by strategy."""
    found = []
    for name in names:
        count = 1 if name in FIXED else min(seeds, setting.model_seeds) if name in SPLITS else seeds
        for place in places:
            data = _data(setting, name, place, most)
            found += [Asked(name, place, seed, (name, data, seed)) for seed in range(count)]
    return found


def _data(setting: Setting, name: str, place: int, most: int) -> str:
    """Digest of the problem, its data and the strategy's training data."""
    replay = setting.replays[place]
    words = [replay.problem.key, replay.group.digest[:12], f"{most}"]
    if name in SPLITS:
        taught = digest_of([setting.replays[other].group for other in SPLITS[name](replay, setting.replays)])
        words += [taught[:12], f"{setting.trees} trees"]
    return " ".join(words)


def units_of(asked: Iterable[Asked], setting: Setting) -> list[list[Asked]]:
    """Runs that share a model or a search space, together."""
    units: dict[object, list[Asked]] = {}
    for run in asked:
        shared: object = (run.name, run.place)
        if run.name in SPLITS:
            shared = SPLITS[run.name](setting.replays[run.place], setting.replays)
        elif run.name.startswith("Kernel Tuner"):
            shared = ("Kernel Tuner", run.place)
        units.setdefault(shared, []).append(run)
    return [sorted(unit, key=lambda run: run.seed) for unit in units.values()]


def ended(units: Sequence[Sequence[Asked]], plan: Plan, setting: Setting, processes: int) -> Iterator[Ended]:
    """Every run of the units as it ends; prints the remaining time on stderr."""
    pace = _Pace(units, setting)
    waiting = iter(units)
    ends: queue.SimpleQueue[Ended | Sequence[Asked] | None] = queue.SimpleQueue()
    children = [Child(plan) for _ in range(min(processes, len(units)))]
    lock = threading.Lock()

    def walk(child: Child) -> None:
        while not child.closed:
            with lock:
                unit = next(waiting, None)
            if unit is None:
                break
            asked = [(run.name, run.place, run.seed) for run in unit]
            for run, end in zip(unit, child.done(asked), strict=False):
                ends.put(Ended(run, end))
            ends.put(unit)
        ends.put(None)

    threads = [threading.Thread(target=walk, args=(child,), daemon=True) for child in children]
    for thread in threads:
        thread.start()
    at_work = len(threads)
    try:
        while at_work:
            told = ends.get()
            if isinstance(told, Ended):
                yield told
            elif told is None:
                at_work -= 1
            else:
                pace.tell(told)
    finally:
        for child in children:
            child.close()


def kept(path: Path | None) -> Orders:
    """Orders in a file of runs; skips an incomplete line of an interrupted run.

    Raises:
        WrongInput: the file holds something else.
    """
    found: Orders = {}
    for text in path.read_text().splitlines() if path and path.is_file() else []:
        try:
            line = json.loads(text)
        except ValueError:
            continue
        with reading(path or Path(), "a file of --runs"):
            name, data, seed = line["key"]
            found[name, data, seed] = line["order"]
    return found


def keep(path: Path, run: Ended) -> None:
    """One more line of the file."""
    line = {"key": run.asked.key, "order": run.end.order, "seconds": round(run.end.seconds, 3)}
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


class _Pace:
    """Prints progress and the remaining time."""

    def __init__(self, units: Sequence[Sequence[Asked]], setting: Setting) -> None:
        self._setting = setting
        self._total, self._done, self._started = sum(_usual_s(unit, setting) for unit in units), 0.0, time.monotonic()

    def tell(self, unit: Sequence[Asked]) -> None:
        """A unit is done."""
        self._done += _usual_s(unit, self._setting)
        gone = time.monotonic() - self._started
        left = gone * (self._total - self._done) / self._done
        times = f"{gone / 60:.1f} min gone, about {left / 60:.0f} left"
        print(f"{self._done / self._total:4.0%}, {times}: {_title(unit, self._setting)}", file=sys.stderr, flush=True)


def _usual_s(unit: Sequence[Asked], setting: Setting) -> float:
    runs = sum(USUAL_S.get(run.name, RUN_S) for run in unit)
    if unit[0].name not in SPLITS:
        return runs
    forests = MOST_FOLDS + len({run.seed for run in unit})
    return runs + TREE_S * setting.trees * forests


def _title(unit: Sequence[Asked], setting: Setting) -> str:
    names, places = list(dict.fromkeys(run.name for run in unit)), {run.place for run in unit}
    problem = setting.replays[unit[0].place].problem
    where = f"{problem.dtype} {problem.shape}" if len(places) == 1 else f"{len(places)} problems"
    return f"{names[0]}{' …' * (len(names) > 1)}, {where}, {len(unit)} runs"
