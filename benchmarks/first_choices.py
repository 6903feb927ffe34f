"""What predictions are worth for problems that no model has learned: each is measured beside the fastest of a tune.

python -m benchmarks.first_choices benchmarks/problems/other.json --out benchmarks/results/first_choices_h200.md
python -m benchmarks.first_choices benchmarks/stores/h100_other --out benchmarks/results/first_choices_h100.md

Problems of a list are searched now, as a tune does before its finals; a folder of stores holds tunes on cards like this
one. For each problem the model's first choice and the fastest of our own configs that the search screened are screened
again, in turn. `benchmarks.predicted` reads the same of the model that a tune had, without a GPU.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Final

from benchmarks.command import as_command
from benchmarks.named import named_problems
from benchmarks.predicted import own_screened, spread
from benchmarks.published import add_out, publish
from benchmarks.restored import stores_in
from space.config import Config
from space.devices import profile_named
from space.family import is_own
from space.problem import Problem
from tuner.prediction.files import model_for
from tuner.prediction.learned import LearnedModel
from tuner.prediction.portfolio import first_choice
from tuner.settings import settings
from tuner.studying.candidates import candidates_for
from tuner.studying.guidance import Guidance
from tuner.studying.open_worker import open_worker
from tuner.studying.records import Budget
from tuner.studying.screening import Search, screen
from workers.build import Build
from workers.builder import Builder
from workers.cuda.bench import Bench
from workers.measurement import Measurement, Outcome
from workers.ports import Worker

#: Screenings of each config.
TURNS: Final = 5


@dataclass(frozen=True, slots=True)
class Pair:
    """A problem, the model's first choice for it, if any, and the fastest config that a search found."""

    problem: Problem
    chosen: Config | None
    found: Config

    @classmethod
    def of(cls, model: LearnedModel, problem: Problem, screened: Iterable[Measurement]) -> Pair | None:
        """None where nothing of ours is correct."""
        correct = [one for one in screened if is_own(one.config) and one.outcome is Outcome.CORRECT]
        if not correct:
            return None
        choice = first_choice(model, problem, profile_named(model.device))
        return cls(problem, choice.config if choice else None, min(correct, key=lambda one: one.median_us).config)


def tuned(folder: Path, model: LearnedModel) -> Iterator[Pair]:
    """Of each problem that the stores have tuned on the model's device."""
    for store in stores_in(folder):
        for best in store.bests(model.device):
            if pair := Pair.of(model, best.problem, own_screened(store, best)):
                yield pair


def searched(listed: Path, model: LearnedModel, worker: Worker, candidates: int) -> Iterator[Pair]:
    """Of each problem of a list, which the worker searches when its pair is asked for."""
    guidance = Guidance(model)
    for _, _, problem in named_problems(listed):
        legal = candidates_for(problem, worker, model=model)
        search = Search(problem, worker.facts.name, legal, Budget(candidates), guidance=guidance)
        if pair := Pair.of(model, problem, screen(worker.begin(problem), search)):
            yield pair


def times_us(bench: Bench, builder: Builder, problem: Problem, configs: Sequence[Config]) -> dict[Config, float]:
    """Medians of the configs' screenings, taken in turn; configs that fail are left out."""
    bench.prepare(problem, seed=1)
    taken: dict[Config, list[float]] = {}
    with ExitStack() as last:
        ready = {}
        for config, build in builder.builds(problem, configs):
            if isinstance(build, Build):
                ready[config] = bench.ready(config, build.digest)
                last.callback(ready[config].discard)
        for _ in range(TURNS):
            for config, one in ready.items():
                measured = bench.screen(one, lambda: None, lambda: None)
                if measured.outcome is Outcome.CORRECT:
                    taken.setdefault(config, []).append(measured.median_us)
    return {config: statistics.median(times) for config, times in taken.items() if len(times) == TURNS}


def rows(bench: Bench, builder: Builder, asked: Iterable[Pair]) -> Iterator[tuple[float, str]]:
    """Each problem's share of the fastest known, 0 without a choice or of a wrong one, and its printed line."""
    for pair in asked:
        configs = dict.fromkeys(config for config in (pair.chosen, pair.found) if config is not None)
        measured = times_us(bench, builder, pair.problem, [*configs])
        known, chosen = measured.get(pair.found), measured.get(pair.chosen) if pair.chosen else None
        if known is None:
            raise SystemExit(f"{pair.found.key} fails now for {pair.problem.title}, where its search found it right")
        share = known / chosen if chosen else 0.0
        told = f"{chosen:.2f}" if chosen else "none"
        key = f"`{pair.chosen.key}`" if pair.chosen else ""
        line = f"| {pair.problem.title} | {known:.2f} | {told} | {share:.3f} | {key} |"
        print(line, flush=True)
        yield share, line


def summary(shares: Sequence[float]) -> str:
    """The geometric mean, the 5th percentile and the least of the shares."""
    mean, low, least = spread(shares)
    return (
        f"Of {len(shares)} problems: {mean:.3f} of the fastest known (geometric mean), {low:.3f} at the 5th "
        f"percentile, {least:.3f} at worst; {sum(not share for share in shares)} have no choice, or a wrong one."
    )


def main() -> None:
    """Prints a line per problem and the summary; publishes the worst first."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("known", type=Path, help="a list of problems, or a folder with files of `gemmtune backup`")
    options.add_argument("--device", type=int, default=0)
    options.add_argument("--tune", type=int, default=48, metavar="N", help="candidates that a problem's search tries")
    options.add_argument("--seconds", type=float, default=3_600.0, help="measure no problem found after this time")
    add_out(options)
    given = options.parse_args()
    ends = time.monotonic() + given.seconds
    with tempfile.TemporaryDirectory() as builds:
        bench, builder = Bench(given.device, Path(builds)), Builder(Path(builds))
        builder.arch = bench.facts.arch
        choice = model_for(bench.facts.name)
        if (model := choice.model) is None:
            raise SystemExit(choice.why)
        with ExitStack() as last:
            last.callback(builder.close)
            if given.known.is_dir():
                asked = tuned(given.known, model)
            else:
                worker = last.enter_context(open_worker(f"cuda:{given.device}", settings()))
                asked = searched(given.known, model, worker, given.tune)
            measured = sorted(rows(bench, builder, takewhile(lambda _: time.monotonic() < ends, asked)))
    if not measured:
        raise SystemExit(f"{given.known} has no tune of {bench.facts.name}: give a list of problems to search")
    header = "| problem | fastest known, µs | first choice, µs | share | config |\n| --- | ---: | ---: | ---: | --- |"
    table, told = "\n".join([header, *(line for _, line in measured)]), summary([share for share, _ in measured])
    print(told)
    publish("first_choices", given.out, told, table, read=[given.known])


if __name__ == "__main__":
    as_command(main)
