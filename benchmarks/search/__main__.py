"""Share of the best against number of measurements, for our search and its rivals, on recorded problems.

python -m benchmarks.search --seeds 10 --out benchmarks/results/search_h200.md --plot benchmarks/results/search_h200.png

Needs the extra `bench` (Kernel Tuner, cmaes, PyTorch for Optuna's GP, matplotlib); a strategy whose package is
not installed is named and left out. nvMatmulHeuristics is proprietary: install `nvidia-matmul-heuristics` yourself.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import optuna

from benchmarks.search.nvmmh import Unavailable
from benchmarks.search.replay import Replay, class_of, read_replays
from benchmarks.search.report import Curves, by_problem, plot, table
from benchmarks.search.setting import Setting
from benchmarks.search.strategies import BY_MODEL, FIXED, SLOW, STRATEGIES
from space.errors import ProblemError
from space.family import family_named
from tuner.model.train import TREES

Orders = dict[tuple[str, str, int], list[int]]


def main() -> None:
    """Runs what is not in the file of runs yet, then prints the table and writes what was asked for."""
    given = _arguments()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    # What third parties warn of is theirs: experimental samplers, optimizers that have not converged.
    warnings.simplefilter("ignore")
    replays = read_replays(given.recordings, family_named(given.family))
    if given.problems:
        replays = [replay for replay in replays if replay.problem.shape in given.problems]
    setting = Setting(replays, family_named(given.family), given.model_seeds, given.trees)
    orders = _kept(given.runs)
    for name in given.strategies:
        seeds = min(given.seeds, given.slow_seeds) if name in SLOW else given.seeds
        for key, order, seconds in _runs(name, setting, seeds, given.most, orders):
            orders[key] = order
            if given.runs:
                with given.runs.open("a") as runs:
                    runs.write(json.dumps({"key": key, "order": order, "seconds": round(seconds, 3)}) + "\n")
    text = _text(given, setting, orders)
    print(text)
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(text + "\n")


def _arguments() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--recordings", type=Path, default=Path("recorded/h200"))
    options.add_argument("--family", default="sm90_wgmma")
    options.add_argument("--strategies", nargs="*", default=list(STRATEGIES), choices=list(STRATEGIES), metavar="NAME")
    options.add_argument("--problems", nargs="*", help="only these shapes")
    options.add_argument("--seeds", type=int, default=10)
    options.add_argument("--slow-seeds", type=int, default=1, help="seeds of a strategy that takes a minute a run")
    options.add_argument("--model-seeds", type=int, default=3, help="different forests for each problem left out")
    options.add_argument("--trees", type=int, default=TREES)
    options.add_argument("--most", type=int, default=128, help="measurements of a run")
    options.add_argument("--runs", type=Path, help="JSON lines: runs found there are not repeated, new ones are added")
    options.add_argument("--out", type=Path)
    options.add_argument("--plot", type=Path)
    return options.parse_args()


def _kept(path: Path | None) -> Orders:
    if path is None or not path.is_file():
        return {}
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {(line["key"][0], line["key"][1], line["key"][2]): line["order"] for line in lines}


def _runs(
    name: str, setting: Setting, seeds: int, most: int, kept: Orders
) -> Iterator[tuple[tuple[str, str, int], list[int], float]]:
    """Runs of one strategy that are not kept; none when a package that it needs is missing."""
    count = 1 if name in FIXED else min(seeds, setting.model_seeds) if name in BY_MODEL else seeds
    for replay in setting.replays:
        for seed in range(count):
            key = (name, _key(replay), seed)
            if key in kept:
                continue
            started = time.perf_counter()
            try:
                order = STRATEGIES[name](replay, setting, seed, most)
            except (ImportError, Unavailable, ProblemError) as error:
                print(f"{name}: left out, {error}", file=sys.stderr)
                return
            yield key, order, time.perf_counter() - started
    print(f"{name}: done", file=sys.stderr)


def _key(replay: Replay) -> str:
    """The problem, and its data: other data make other runs."""
    return f"{replay.problem.key} {replay.group.digest[:12]}"


def _text(given: argparse.Namespace, setting: Setting, orders: Orders) -> str:
    per_problem: dict[str, dict[str, Curves]] = {}
    for name in given.strategies:
        for replay in setting.replays:
            asked, problem = (name, _key(replay)), replay.problem
            rows = [replay.shares(order, given.most) for key, order in orders.items() if key[:2] == asked]
            if rows:
                label = f"{problem.dtype} {problem.layout} {problem.shape}, {class_of(problem)}"
                per_problem.setdefault(name, {})[label] = Curves(np.array(rows))
    curves = {name: Curves(_balanced(each)) for name, each in per_problem.items()}
    runs = {name: sum(len(problem.shares) for problem in each.values()) for name, each in per_problem.items()}
    if given.plot:
        plot(curves, given.plot, f"{len(setting.replays)} recorded problems of {setting.replays[0].device}")
    command = shlex.join(["python", "-m", "benchmarks.search", *sys.argv[1:]])
    return "\n\n".join([
        f"`{command}`", _about(setting, given), table(curves, runs),
        "After 16 measurements, by problem:", by_problem(per_problem, list(curves), min(16, given.most)),
    ])  # fmt: skip


def _balanced(problems: dict[str, Curves]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Every problem with as many rows, so that each counts alike whatever its number of seeds."""
    most = max(len(each.shares) for each in problems.values())
    return np.vstack([np.resize(each.shares, (most, each.shares.shape[1])) for each in problems.values()])


def _about(setting: Setting, given: argparse.Namespace) -> str:
    sizes = [len(replay.configs) for replay in setting.replays]
    return (
        f"{len(sizes)} problems recorded on {setting.replays[0].device}, {min(sizes)} to {max(sizes)} candidates each. "
        f"Cells: share of the fastest recorded candidate, geometric mean / 5th percentile over problems and seeds. "
        f"A candidate's time is its median, and what the finals made of it where it was in them, on the screen's "
        f"scale. `guided` learns from the other problems only (`class left out`: from the other classes only), "
        f"measures in the batches of a study and differs by the forest's seed ({given.model_seeds}); Optuna's "
        f"samplers see each result before they ask again, and a wish that is no candidate is moved to the nearest "
        f"one. `to 2 %` counts a run that never was within 2 % as {given.most}."
    )


if __name__ == "__main__":
    main()
