"""Each family's fastest screening beside cuBLASLt's, of the problems in a folder of recordings.

python -m benchmarks.recorded_families recorded/h200_unaligned --out benchmarks/results/recorded_families_h200.md

Numbers are geometric means of the library's time over a family's: above 1 the family is faster. All come from one
recording of each problem; nothing is measured here. `first`: problems of which the family has the fastest of ours.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.command import as_command
from benchmarks.deployed_table import mean
from benchmarks.published import add_out, publish
from space.arch import VECTOR_BYTES
from space.families.common import input_bytes
from space.families.cublaslt import CUBLASLT
from space.families.mma_sync.operands import line_elements
from space.kinds.gemm import Gemm
from workers.measurement import Outcome
from workers.recording import read_recording


@dataclass(frozen=True)
class Recorded:
    """One problem.

    Attributes:
        us: the fastest correct screening of each family, the library among them.
    """

    problem: Gemm
    us: Mapping[str, float]

    def gain(self, family: str) -> float:
        return self.us[CUBLASLT.name] / self.us[family]

    @property
    def own(self) -> Mapping[str, float]:
        return {family: us for family, us in self.us.items() if family != CUBLASLT.name}

    @property
    def first(self) -> str:
        return min(self.own, key=self.own.__getitem__)


def recorded(folder: Path) -> Iterator[Recorded]:
    """Problems of a folder that the library and one of our families multiplied."""
    for path in sorted(folder.glob("*.parquet")):
        recording = read_recording(path)
        us: dict[str, float] = {}
        for one, _ in recording.measurements:
            if one.stage == "screen" and one.outcome is Outcome.CORRECT:
                family = one.config.family
                us[family] = min(us.get(family, one.median_us), one.median_us)
        if CUBLASLT.name in us and len(us) > 1:
            assert isinstance(recording.problem, Gemm)
            yield Recorded(recording.problem, us)


def layout_of(problem: Gemm) -> tuple[str, ...]:
    """The rows of the first table."""
    return problem.dtype, problem.layout


def alignment_of(problem: Gemm) -> tuple[str, ...]:
    """The rows of the second: bytes of an element, and those that lines of A and B are aligned to, at most 16."""
    size = input_bytes(problem)
    lines = [line_elements(problem, operand) * size for operand in "ab"]
    return str(size), *(f"{math.gcd(line_bytes, VECTOR_BYTES):2}" for line_bytes in lines)


def table(heads: Sequence[str], told: Sequence[Recorded], by: Callable[[Gemm], tuple[str, ...]]) -> str:
    """One line for each group of problems, and one for all."""
    families = sorted({family for one in told for family in one.own})
    names = [*heads, "problems", *families, "fastest", *(f"{family} first" for family in families)]
    groups: dict[tuple[str, ...], list[Recorded]] = defaultdict(list)
    for one in told:
        groups[by(one.problem)].append(one)
    lines = [f"| {' | '.join(names)} |", f"| {' | '.join(['---'] * len(names))} |"]
    for key, some in [*sorted(groups.items()), (("all", *[""] * (len(heads) - 1)), list(told))]:
        gains = [[one.gain(family) for one in some if family in one.us] for family in families]
        shown = [f"{mean(each):.3f} ({len(each)})" if each else "–" for each in gains]
        firsts = [str(sum(one.first == family for one in some)) for family in families]
        cells = [*key, str(len(some)), *shown, f"{mean([one.gain(one.first) for one in some]):.3f}", *firsts]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Prints both tables."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path, help="recordings of one device")
    add_out(options)
    given = options.parse_args()
    told = [*recorded(given.folder)]
    tables = [
        table(("A, B", "layout"), told, layout_of),
        table(("bytes of an element", "lines of A", "of B"), told, alignment_of),
    ]
    print("\n\n".join(tables))
    publish("recorded_families", given.out, *tables, read=[given.folder])


if __name__ == "__main__":
    as_command(main)
