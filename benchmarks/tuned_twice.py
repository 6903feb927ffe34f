"""Whether two whole tunes of a problem agree, and how far their ratios to the library are apart: 20 large products,
each tuned twice in fresh stores and GPU processes.

python -m benchmarks.tuned_twice --out benchmarks/results/tuned_twice_h200.md

With several GPUs (`--devices 0 1`) each takes the next problem, and tunes it twice. `--stores FOLDER` keeps a backup of
each tune's store, and `--from FOLDER` prints the table of such a folder without a GPU, as today's rules pick.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Final, Self

from benchmarks.command import WrongInput, as_command, positive
from benchmarks.finals_kept import finals_of
from benchmarks.named import problem_of
from benchmarks.published import add_out, publish
from benchmarks.restored import restored
from space.config import Config
from space.kinds.gemm import Gemm
from space.problem import Problem
from space.structures import structure_of
from tuner.evidence.picks import LIBRARY, SUSTAINED_TIE, bests_of, versus
from tuner.evidence.records import Best, Ratio
from tuner.evidence.store import Store
from tuner.settings import database_url, settings
from tuner.studying.guidance import guidance_for
from tuner.studying.study import Budget, tune
from workers.cuda.worker import CudaWorker
from workers.measurement import Measurement, Policy

#: How the names of a problem's two stores end.
ENDS: Final = ("_1.jsonl.gz", "_2.jsonl.gz")
PROBLEMS: Final = (
    "bf16:4096x4096x4096", "bf16:6144x6144x6144", "bf16:8192x8192x8192", "bf16:2048x6144x4096", "bf16:4096x6144x4096",
    "bf16:2048x4096x14336", "bf16:4096x4096x14336", "bf16:4096x28672x4096", "bf16:8192x4096x4096",
    "bf16:16384x4096x4096", "bf16:4096x2880x4096", "bf16:4096x8192x3584", "bf16:2048x8192x1024", "bf16:4096x5120x2048",
    "bf16:4096x9216x4096", "bf16:1024x28672x4096", "fp16:4096x4096x8192", "fp8_e4m3:4096x7168x2048",
    "fp8_e4m3:4096x4096x7168", "tf32:4096x4096x4096",
)  # fmt: skip

HEADER: Final = (
    "| problem | first tune | second tune | same winner | second / first, each in its finals (95 %) | tied |\n"
    "| --- | --- | --- | --- | --- | --- |"
)


@dataclass(frozen=True, slots=True)
class Tune:
    """What one tune found.

    Attributes:
        best: what it served.
        finals: its correct finalists, by policy and their configs' keys.
    """

    best: Best
    finals: Mapping[Policy, Mapping[str, Measurement]]

    @classmethod
    def kept_in(cls, store: Store) -> Self:
        """The only one of a store, whose winner today's rules pick."""
        (kept,) = store.bests()
        (finals,) = finals_of(store)
        best = bests_of(kept.problem, store.final_series(kept.winner.study_id), kept.tried, kept.failed)[0]
        return cls(best, finals.by_policy)


@dataclass(frozen=True, slots=True)
class Apart:
    """How far two tunes' ratios of one config to the library's first choice are apart, as shares: as ratios of turns,
    which picks go by, and as ratios of medians.
    """

    policy: Policy
    by_turn: float
    by_median: float


@dataclass(frozen=True, slots=True)
class Pair:
    """Two tunes of a problem.

    Attributes:
        first, second: their winners.
        versus: the second's time over the first's, each in the finals that it won; None where they are the same.
        ratios: of configs that both timed.
    """

    problem: Problem
    first: Config
    second: Config
    versus: Ratio | None
    ratios: Sequence[Apart]

    @classmethod
    def of(cls, first: Tune, second: Tune) -> Self:
        """Of two tunes."""
        one, other = first.best, second.best
        same = one.config == other.config
        apart = None if same else versus(
            other.winner.measurement, one.winner.measurement, one.device, one_run=False
        )
        return cls(one.problem, one.config, other.config, apart, [*ratios_apart(first, second)])

    @property
    def tied(self) -> bool:
        """Whether the winners are the same, or tie as picks under `sustained` have it."""
        return self.versus is None or abs(self.versus.value - 1) <= SUSTAINED_TIE

    @property
    def alike(self) -> bool:
        """Whether the winners are one structure: they differ at most in launch order, buffering and stores."""
        return structure_of(self.first) == structure_of(self.second)

    @property
    def line(self) -> str:
        versus = f"{self.versus.value:.4f} ({self.versus.low:.4f} to {self.versus.high:.4f})" if self.versus else "–"
        return (
            f"| {self.problem.title} | `{self.first.key}` | `{self.second.key}` | {'no' if self.versus else 'yes'} "
            f"| {versus} | {'yes' if self.tied else 'NO'} |"
        )


def ratios_apart(first: Tune, second: Tune) -> Iterator[Apart]:
    """Of each config that both tunes timed beside the same first choice of the library."""
    for policy, finals in first.finals.items():
        again = second.finals.get(policy, {})
        library = next((key for key, one in finals.items() if one.config.family == LIBRARY), None)
        if library is None or library not in again:
            continue
        for key in finals.keys() & again.keys() - {library}:
            two = [(each[library], each[key]) for each in (finals, again)]
            by_turn = [versus(*each, first.best.device).value for each in two]
            by_median = [theirs.median_us / ours.median_us for theirs, ours in two]
            yield Apart(policy, abs(by_turn[0] / by_turn[1] - 1), abs(by_median[0] / by_median[1] - 1))


def main() -> None:
    """Prints a line per problem, then how many agree."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("problems", nargs="*", default=PROBLEMS, metavar="DTYPE:MxNxK")
    options.add_argument("--candidates", type=positive, default=48, help="budget of each tune")
    options.add_argument("--devices", type=int, nargs="+", default=[0], help="ordinals of the GPUs")
    options.add_argument("--seconds", type=float, default=3_600.0, help="begin no problem after this time")
    options.add_argument("--stores", type=Path, metavar="FOLDER", help="keep a backup of each tune's store here")
    options.add_argument("--from", dest="kept", type=Path, metavar="FOLDER", help="of `--stores`: tune nothing")
    add_out(options)
    given = options.parse_args()
    if given.kept:
        pairs, skipped = [*pairs_in(given.kept)], list[str]()
        if not pairs:
            raise WrongInput(f"{given.kept} has no file that ends in {ENDS[0]}: give a folder of --stores")
    else:
        pairs, skipped = measured(given)
        if not pairs:
            raise WrongInput(f"no problem was tuned twice: {skipped[0]}")
    text = summary(pairs, skipped)
    print(text, flush=True)
    lines = "\n".join([HEADER, *(pair.line for pair in pairs)])
    publish("tuned_twice", given.out, lines, text, read=[given.kept] if given.kept else [])


def measured(given: argparse.Namespace) -> tuple[list[Pair], list[str]]:
    """The pairs of tunes on the GPUs given, and why other problems have none."""
    ends = time.monotonic() + given.seconds
    if given.stores:
        given.stores.mkdir(parents=True, exist_ok=True)
    free: SimpleQueue[int] = SimpleQueue()
    for device in given.devices:
        free.put(device)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(given.devices)) as pool:

        def told(place: int, problem: Gemm) -> Pair | str:
            device = free.get()
            try:
                if time.monotonic() > ends:
                    return f"{problem.title}: no time was left"
                pair = tuned_twice(problem, device, given.candidates, Path(folder) / str(place), given.stores)
            except Exception as error:  # one product that fails is a line, not the end
                return f"{problem.title}: {type(error).__name__}: {error}"
            finally:
                free.put(device)
            print(pair.line, flush=True)
            return pair

        made = list(pool.map(told, range(len(given.problems)), map(problem_of, given.problems)))
    return [one for one in made if isinstance(one, Pair)], [why for why in made if isinstance(why, str)]


def summary(pairs: Sequence[Pair], skipped: Sequence[str] = ()) -> str:
    """How many pairs agree, and why other problems have none."""
    same, alike = sum(pair.versus is None for pair in pairs), sum(pair.alike for pair in pairs)
    tied = sum(pair.tied for pair in pairs)
    apart = max((abs(pair.versus.value - 1) for pair in pairs if pair.versus), default=0)
    return (
        f"{same} of {len(pairs)} pairs of tunes named the same winner, {alike} the same one or one of its structure, "
        f"{tied} the same one or one that ties, within {SUSTAINED_TIE:.0%}. Winners that differ are {apart:.2%} apart "
        "at most."
        + "".join(f"\n- {line}" for line in skipped)
        + "\n\n" + "\n".join(repeated(pairs))
    )


def repeated(pairs: Sequence[Pair]) -> Iterator[str]:
    """How well ratios repeat from tune to tune, by policy."""
    yield "Ratios of configs that both tunes timed to the library's first choice, from tune to tune:"
    yield ""
    yield "| policy | configs | ratios of turns apart, rms | at most | ratios of medians apart, rms | at most |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for policy in Policy:
        of_policy = [each for pair in pairs for each in pair.ratios if each.policy is policy]
        if of_policy:
            cells = []
            for apart in ([each.by_turn for each in of_policy], [each.by_median for each in of_policy]):
                cells += [f"{math.sqrt(statistics.fmean(share * share for share in apart)):.2%}", f"{max(apart):.2%}"]
            yield f"| {policy.value} | {len(of_policy)} | {' | '.join(cells)} |"


def tuned_twice(problem: Gemm, device: int, candidates: int, folder: Path, kept: Path | None) -> Pair:
    """Two tunes, which share builds and nothing else."""
    folder.mkdir()
    backups = [kept / f"{problem.title.replace(' ', '_')}{end}" if kept else None for end in ENDS]
    first, second = (
        tuned(problem, device, candidates, folder / f"{number}.db", backup) for number, backup in enumerate(backups)
    )
    return Pair.of(first, second)


def tuned(problem: Gemm, device: int, candidates: int, db: Path, backup: Path | None) -> Tune:
    """One tune, in a store of its own."""
    with Store.open(database_url(str(db)), create=True) as store, CudaWorker(device, db.parent) as worker:
        guidance = guidance_for(worker.facts.name, settings().model_dir)
        tune(store, worker, problem, Budget(candidates), guidance=guidance)
        if backup:
            store.backup(backup)
        return Tune.kept_in(store)


def pairs_in(folder: Path) -> Iterator[Pair]:
    """The pairs whose stores `--stores` kept, by the names of their files."""
    first, second = ENDS
    with tempfile.TemporaryDirectory() as work:
        for path in sorted(folder.glob(f"*{first}")):
            made = []
            for kept in (path, path.with_name(path.name.removesuffix(first) + second)):
                with restored(kept, Path(work)) as store:
                    made.append(Tune.kept_in(store))
            yield Pair.of(*made)


if __name__ == "__main__":
    as_command(main)
