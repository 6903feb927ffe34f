"""Share of the best against number of measurements, for our search and its rivals, on recorded problems.

python -m benchmarks.search --seeds 10 --out benchmarks/results/search_order_h200.md

Needs the extra `bench` (Kernel Tuner, matplotlib); a strategy whose package is not installed is named and left out.
nvMatmulHeuristics is proprietary: install `nvidia-matmul-heuristics` yourself.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.command import WrongInput, as_command, positive
from benchmarks.published import add_out, publish
from benchmarks.search.child import Plan, quiet
from benchmarks.search.plot import check_plot, plot
from benchmarks.search.replay import Floats, Replay, class_of, superseded
from benchmarks.search.report import Curves, by_problem, table
from benchmarks.search.runs import Asked, Ended, ended, keep, kept, units_of, wanted
from benchmarks.search.setting import Setting
from benchmarks.search.strategies import STRATEGIES
from tuner.prediction.grow import TREES

#: Reasons for missing runs, by strategy, each with its problems.
Failures = dict[str, dict[str, set[str]]]


def main() -> None:
    """Runs everything that the file of runs lacks, then prints the table and writes the requested files."""
    given = _arguments()
    quiet()
    if given.plot:
        check_plot(given.plot)
    folders, teachers = tuple(map(str, given.recordings)), tuple(map(str, given.teachers))
    plan = Plan(folders, teachers, given.family, given.model_seeds, given.trees, given.most)
    setting = plan.setting()
    shapes = given.problems or [replay.problem.shape for replay in setting.searched]
    places = [
        place for place, replay in enumerate(setting.searched)
        if replay.problem.shape in shapes and not superseded(replay, setting.searched)
    ]  # fmt: skip
    if not places:
        raise WrongInput(f"none of {', '.join(shapes)} is in {', '.join(map(str, given.recordings))}: give others")
    asked = wanted(setting, given.strategies, places, given.seeds, given.most)
    read = [*given.recordings, *given.teachers, *([given.runs] if given.runs and given.runs.exists() else [])]
    orders = kept(given.runs)
    failures: Failures = {}
    missing = units_of((run for run in asked if run.key not in orders), setting)
    try:
        for run in ended(missing, plan, setting, given.processes):
            if run.end.failure:
                _tell_failure(run, setting, failures)
                continue
            orders[run.asked.key] = run.end.order
            if given.runs:
                keep(given.runs, run)
    except KeyboardInterrupt:
        print("stopped: the table is of the runs that there are", file=sys.stderr)
    done = {run: orders[run.key] for run in asked if run.key in orders}
    if not done:
        raise SystemExit("no run has ended: there is no table to make")
    text = _text(given, setting, places, done, _gaps(failures, len(asked) - len(done)))
    print(text)
    publish("search", given.out, text, read=read)


def _arguments() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--recordings", type=Path, nargs="+", default=[Path("recorded/h200")])
    options.add_argument("--teachers", type=Path, nargs="*", default=[], help="recordings that only teach")
    options.add_argument("--family", default="sm90_wgmma")
    options.add_argument("--strategies", nargs="*", default=list(STRATEGIES), choices=list(STRATEGIES), metavar="NAME")
    options.add_argument("--problems", nargs="*", help="search only these shapes; all others teach")
    options.add_argument("--seeds", type=positive, default=10)
    options.add_argument("--model-seeds", type=positive, default=10, help="different forests per held-out problem")
    options.add_argument("--trees", type=positive, default=TREES)
    options.add_argument("--most", type=positive, default=128, help="measurements of a run")
    options.add_argument("--processes", type=positive, default=os.cpu_count() or 1)
    file = "JSON lines: runs found there are not repeated, new ones are added; other code needs another file"
    options.add_argument("--runs", type=Path, help=file)
    add_out(options)
    options.add_argument("--plot", type=Path)
    return options.parse_args()


def _tell_failure(run: Ended, setting: Setting, failures: Failures) -> None:
    struck = failures.setdefault(run.asked.name, {})
    if run.end.failure not in struck:
        print(f"{run.asked.name}: left out, {run.end.failure}", file=sys.stderr)
    struck.setdefault(run.end.failure, set()).add(setting.replays[run.asked.place].problem.key)


def _text(
    given: argparse.Namespace, setting: Setting, places: Sequence[int], orders: Mapping[Asked, list[int]],
    gaps: list[str],
) -> str:  # fmt: skip
    rows: dict[str, dict[str, list[Floats]]] = {}
    for run, order in orders.items():
        replay = setting.replays[run.place]
        rows.setdefault(run.name, {}).setdefault(_label(replay), []).append(replay.shares(order, given.most))
    per_problem = {
        name: {label: Curves(np.array(each)) for label, each in found.items()} for name, found in rows.items()
    }
    curves = {name: Curves(_balanced(each)) for name, each in per_problem.items()}
    runs = {name: sum(len(problem.shares) for problem in each.values()) for name, each in per_problem.items()}
    if given.plot:
        plot(curves, given.plot, f"{len(places)} recordings of {setting.replays[0].device}")
    return "\n\n".join([
        _about(setting, places, given), table(curves, runs), *gaps,
        by_problem(per_problem, list(curves), min(16, given.most)),
    ])  # fmt: skip


def _label(replay: Replay) -> str:
    problem = replay.problem
    fused = "" if problem.epilogue == "none" else f" {problem.epilogue}"
    batched = "" if problem.batch == 1 else f" batch {problem.batch}"
    return f"{problem.title}{batched}{fused}, {class_of(problem)}"


def _gaps(failures: Failures, missing: int) -> list[str]:
    """Notes on runs that are missing from the table."""
    lines = [
        f"* {name}, {len(problems)} problems: {reason}"
        for name, reasons in failures.items() for reason, problems in reasons.items()
    ]  # fmt: skip
    told = [f"{missing} runs are missing: they failed, or this was stopped before. Rows with fewer runs are over fewer "
            "problems, and not to be compared."] if missing else []  # fmt: skip
    return [*told, "\n".join(lines)] if lines else told


def _balanced(problems: Mapping[str, Curves]) -> Floats:
    """Repeats rows so that every problem has the same number and counts equally."""
    most = max(len(each.shares) for each in problems.values())
    return np.vstack([np.resize(each.shares, (most, each.shares.shape[1])) for each in problems.values()])


def _about(setting: Setting, places: Sequence[int], given: argparse.Namespace) -> str:
    sizes = [len(setting.replays[place].configs) for place in places]
    return (
        f"{len(sizes)} recordings of {len({setting.replays[place].problem for place in places})} problems on "
        f"{setting.replays[0].device}, {min(sizes)} to {max(sizes)} candidates each; "
        f"{len(setting.replays) - len(sizes)} others only teach. "
        f"Cells: share of the fastest recorded candidate, geometric mean / 5th percentile / worst over problems and "
        f"seeds. A candidate's time is its median, and what the finals made of it where it was in them, on the "
        f"screen's scale. `guided` learns from the other problems only (`tenth left out`: without a tenth of all "
        f"shapes, this one among them; `class left out`: from the other classes only), "
        f"measures in the batches of a study and differs by the forest's seed ({given.model_seeds}; how far forests "
        f"are to be believed is judged once for each problem left out, on the problems that teach). "
        f"`to 2 %` counts a run that never was within 2 % as {given.most}."
    )


if __name__ == "__main__":
    as_command(main)
