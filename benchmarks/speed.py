"""Our best kernel beside cuBLASLt's first choice and the best of its candidates, in one run.

python -m benchmarks.speed --candidates 320 --seconds 10 --turns 20 --out benchmarks/results/speed_h200.md

The list of problems is benchmarks/problems/dev.json, or another JSON list of {name, m, n, k, dtype, layout, class},
where batch and epilogue may be added. Each problem is tuned (or resumed from the store of --db); its ratios are of the
finals under the policy that decides what is served, which its line names. Only our own families count as ours. Each
line is printed as soon as it is measured.

With several GPUs, run one process per GPU: --part 1/2 --device cuda:0 and --part 2/2 --device cuda:1, each with
--out, then --merge the two tables.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.command import as_command, positive, reading
from benchmarks.deployed_table import mean
from benchmarks.facts import recordings
from benchmarks.named import problem_of_entry
from benchmarks.published import ROOT, add_out, as_table, facts_of, joined_facts, publish, shared_facts, tracked
from space.errors import SpaceError
from space.family import families_for
from space.kinds.gemm import Gemm
from space.rank import roofline_us
from tuner.cli.record import part_of
from tuner.errors import TunerError
from tuner.evidence.picks import LIBRARY, pick, versus
from tuner.evidence.records import Ratio
from tuner.evidence.store import Store
from tuner.settings import database_url, settings
from tuner.studying.guidance import guidance_for
from tuner.studying.open_worker import open_worker
from tuner.studying.study import Budget, Report, tune
from workers.kernels.source import sources_digest
from workers.measurement import Measurement
from workers.ports import Worker

HEADER = (
    "| problem | class | µs | TFLOP/s | of roofline | against first (95 %) | against best (95 %) | MHz | "
    "worst error / bound | tried | s | policy | config |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)

#: Begins the paragraph of problems that have no row.
NOT_HERE: Final = "Not here: "
#: The development suite: GEMMs of models, of papers, and of awkward extents.
SUITE: Final = ROOT / "benchmarks" / "problems" / "dev.json"
#: Classes of products that are bound by the tensor cores, besides training.
LARGE: Final = ("square", "prefill", "lm_head")


@dataclass(frozen=True)
class Row:
    """One measured problem."""

    name: str
    kind: str
    problem: Gemm
    ours: Measurement
    first: Ratio | None
    best: Ratio | None
    roofline: float
    tried: int
    seconds: float

    def __str__(self) -> str:
        check, clocks = self.ours.verification, self.ours.clocks
        cells = [
            f"{self.name} {self.problem.title}", self.kind,
            f"{self.ours.median_us:.2f}", f"{self.problem.tflops(self.ours.median_us):.1f}", f"{self.roofline:.0%}",
            _interval(self.first), _interval(self.best), str(clocks.sm_mhz) if clocks else "–",
            f"{check.worst_ratio:.2f}" if check else "–", str(self.tried), f"{self.seconds:.1f}",
            self.ours.policy.value, f"`{self.ours.config.knobs_text}`",
        ]  # fmt: skip
        return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Prints the tables and writes them with their command."""
    given = options()
    if given.merge:
        return merged(given.merge, given.out)
    read = [given.problems, *recordings(given.device)]
    if given.db and Path(given.db).exists():
        read.append(Path(given.db))
    if given.out:
        tracked(read)
    with reading(given.problems, "a JSON list of problems with their names"):
        listed = json.loads(given.problems.read_text())
        if not isinstance(listed, list):
            raise TypeError("it is no list")
        wanted = [one for one in listed if one["name"] and _matches(one, given.only)]
    wanted = part_of(wanted, given.part)
    rows: list[Row] = []
    refused: list[str] = []
    about = ""
    print(HEADER, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        url = database_url(given.db or f"{folder}/speed.db")
        with Store.open(url) as store, open_worker(given.device, settings()) as worker:
            for one in wanted:
                made = measure(store, worker, one, Budget(given.candidates, given.seconds, given.turns))
                if isinstance(made, str):
                    refused.append(f"{one['name']} ({made})")
                    print(f"| {one['name']} | {made} |", flush=True)
                else:
                    row, about = made
                    rows.append(row)
                    print(row, flush=True)
                if rows:
                    write(given.out, rows, refused, about, read)
    print("", *summary([Ratios.of(row) for row in rows]), sep="\n")


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", type=Path, nargs="?", default=SUITE)
    parser.add_argument("--only", default="", help="classes, dtypes or names, joined by commas")
    parser.add_argument("--part", default="1/1", metavar="I/N", help="every Nth problem, from the Ith on")
    parser.add_argument("--merge", type=Path, nargs="+", help="tables of parts to merge")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--candidates", type=positive, default=192)
    parser.add_argument("--seconds", type=float, help="wall time of one problem's screening")
    parser.add_argument("--turns", type=positive, default=40)
    parser.add_argument("--db", help="keep the store in this file")
    add_out(parser)
    return parser.parse_args()


def measure(store: Store, worker: Worker, one: Mapping[str, str | int], budget: Budget) -> tuple[Row, str] | str:
    """One problem's row and provenance, or the reason why there is none."""
    started = time.perf_counter()
    try:
        problem = problem_of_entry(one, str(one["name"]))
        guidance = guidance_for(worker.facts.name, settings().model_dir)
        report = tune(store, worker, problem, budget, guidance=guidance)
    except (SpaceError, TunerError) as error:
        return str(error)
    finals = [final for final in report.finals if final.policy is report.best.policy]
    library = [final for final in finals if final.config.family == LIBRARY]
    own = [final for final in finals if final.config.family != LIBRARY]
    if not own:
        return "no candidate of ours reached the finals"
    ours = pick(own, problem, worker.facts.name)
    share = roofline_us(problem, worker.facts.profile) / ours.median_us
    row = Row(
        str(one["name"]), str(one.get("class", "–")), problem, ours, _against(library[:1], ours, worker.facts.name),
        _against(sorted(library, key=lambda one: one.median_us), ours, worker.facts.name), share, report.best.tried,
        time.perf_counter() - started,
    )  # fmt: skip
    return row, provenance(report, worker.facts.arch)


def provenance(report: Report, arch: str) -> str:
    """Provenance in one line, with the digest of all our families' sources, whichever this problem used."""
    by = report.best.winner.provenance
    sources = sources_digest(families_for(arch))
    return (
        f"{by.device}, driver {by.driver}, NVRTC {by.nvrtc}, cuBLASLt {by.cublaslt}, kernel sources "
        f"{sources[:12]}. Ratios: cuBLASLt's time / ours; above 1 ours is faster."
    )


@dataclass(frozen=True)
class Ratios:
    """A row's ratios in the summary: to cuBLASLt's first choice, and to the best of its candidates."""

    kind: str
    dtype: str
    first: float | None
    best: float | None

    @classmethod
    def of(cls, row: Row) -> Ratios:
        """Of one row measured here."""
        first, best = (against.value if against else None for against in (row.first, row.best))
        return cls(row.kind, row.problem.dtype, first, best)

    @classmethod
    def read(cls, line: str) -> Ratios:
        """Of one line of a table."""
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        first, best = (None if cell == "–" else float(cell.split()[0]) for cell in cells[5:7])
        return cls(cells[1], cells[0].split()[-3], first, best)

    @property
    def group(self) -> str:
        """Groups of classes with the same bound, and of dtypes that the library treats alike."""
        if self.kind not in LARGE and not self.kind.startswith("train"):
            return "odd" if self.kind == "odd" else "few rows or columns"
        return "large, 16 bits" if self.dtype in ("bf16", "fp16") else "large, other dtypes"


def merged(parts: Sequence[Path], out: Path | None) -> None:
    """One table of the parts' lines, with the summary of all, under the facts that the parts share."""
    texts = dict[Path, str]()
    for part in parts:
        with reading(part, "a table that --out wrote"):
            texts[part] = part.read_text()
    runs = [facts_of(text) for text in texts.values()]
    facts = joined_facts("speed", runs, parts) if out else shared_facts(runs)
    abouts = set[str]()
    printed: list[str] = []
    for part, text in texts.items():
        with reading(part, "a table that --out wrote"):
            abouts.add(text.split("\n\n")[1])
            printed += text.split(HEADER)[1].strip().splitlines()
    if facts is None or len(abouts) != 1:
        raise SystemExit(f"{', '.join(map(str, parts))} were not printed from one commit, list and device")
    lines = [line for line in printed if line.startswith("|")]
    refused = [line.removeprefix(NOT_HERE) for line in printed if line.startswith(NOT_HERE)]
    means = summary([Ratios.read(line) for line in lines])
    whole = [as_table(facts), "", *abouts, "", *means]
    print("\n".join(whole))
    if out:
        out.write_text("\n".join([*whole, "", HEADER, *lines, *not_here(refused), ""]))


def summary(rows: Sequence[Ratios]) -> Iterator[str]:
    """Geometric means by class, by groups of them and over all, and the worst problem; of those with a library."""
    yield "| class | problems | against first | against best | worst against first | worst against best |"
    yield "| --- | --- | --- | --- | --- | --- |"
    kinds = dict.fromkeys(row.kind for row in rows)
    groups = dict.fromkeys(row.group for row in rows if row.group not in kinds)
    for kind in [*kinds, *groups, "all"]:
        chosen = [row for row in rows if kind in (row.kind, row.group, "all")]
        first = [row.first for row in chosen if row.first]
        best = [row.best for row in chosen if row.best]
        if first:
            yield (
                f"| {kind} | {len(first)} | {mean(first):.3f} | {mean(best):.3f} | {min(first):.3f} | "
                f"{min(best):.3f} |"
            )


def not_here(refused: Sequence[str]) -> list[str]:
    """The paragraph of problems without a row, each with its reason; nothing if all have one."""
    return ["", NOT_HERE + "; ".join(refused)] if refused else []


def write(out: Path | None, rows: Sequence[Row], refused: Sequence[str], about: str, read: Sequence[Path]) -> None:
    """Writes the whole table so far, so that an interrupted run keeps its results."""
    means = "\n".join(summary([Ratios.of(row) for row in rows]))
    publish("speed", out, about, means, "\n".join([HEADER, *map(str, rows), *not_here(refused)]), read=read)


def _matches(one: Mapping[str, str | int], only: str) -> bool:
    words = [word for word in only.split(",") if word]
    return not words or any(word in (one.get("class"), one.get("dtype"), one.get("name")) for word in words)


def _against(library: Sequence[Measurement], ours: Measurement, device: str) -> Ratio | None:
    return versus(library[0], ours, device) if library else None


def _interval(interval: Ratio | None) -> str:
    return f"{interval.value:.3f} ({interval.low:.3f}–{interval.high:.3f})" if interval else "–"


if __name__ == "__main__":
    as_command(main)
