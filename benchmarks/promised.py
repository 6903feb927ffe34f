"""What finals promised of ours against the library, beside what a torch program then measured of the same two configs.

python -m benchmarks.promised --of benchmarks/stores/h200 benchmarks/results/parts/deployed_h200_1_of_4.json …

Each `--of` names a folder of stores and the parts of `benchmarks.deployed` that were measured from them. Of every
problem with both arms, the ratio of the fastest of the library's to the fastest of ours in the finals is compared with
torch's ratio of these arms, regime by regime: `chain` with `chain`, `sustained` with `alone`, `burst` with `burst`.
A difference is torch's ratio over the finals', less one; problems are parted by the policy that decides them. A second
table has the microseconds by which torch's time of a short product is longer than the finals'. Of `chain` they hold the
small kernel before the product too, which is another.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.command import as_command
from benchmarks.deployed_table import Part, Row
from benchmarks.finals_kept import Finals, finals_of
from benchmarks.published import add_out, publish
from benchmarks.restored import stores_in
from tuner.evidence.picks import versus
from workers.measurement import Measurement, Policy

#: Regimes of `benchmarks.deployed`, by the policy that stands for them.
REGIMES: Final = {Policy.CHAIN: "chain", Policy.SUSTAINED: "alone", Policy.BURST: "burst"}
HEADER: Final = (
    "| decided by | compared under | problems | median | 5th percentile | 95th | within 2 % | worst | of |\n"
    "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |"
)
#: Whose a product is, and whether it is more than one kernel.
KINDS: Final = ("ours", "cuBLASLt's of one kernel", "cuBLASLt's of several")
ADDED: Final = "| a product takes in torch | compared under | problems | longer by, µs | 5th percentile | 95th |\n" + (
    "| --- | --- | ---: | ---: | ---: | ---: |"
)


@dataclass(frozen=True, slots=True)
class Difference:
    """Of one problem under one policy.

    Attributes:
        decides: the policy that decides what is served.
        share: torch's ratio of ours to the library over the finals', less one.
        added_us: torch's time less the finals', of ours and of the library's.
        split: whether the library's is several kernels.
    """

    problem: str
    decides: Policy
    policy: Policy
    share: float
    added_us: tuple[float, float]
    split: bool

    @property
    def added(self) -> Iterator[tuple[str, float]]:
        """Kinds of products, and by how much torch's times are longer."""
        yield from zip((KINDS[0], KINDS[1 + self.split]), self.added_us, strict=True)


def differences(finals: Iterable[Finals], rows: Sequence[Row]) -> Iterator[Difference]:
    """Of each problem that has one row, of both arms, which are the fastest of the finals (`benchmarks.deployed`)."""
    for one in finals:
        found = [row for row in rows if (row.problem, row.dtype) == (one.problem.shape, one.problem.dtype)]
        if len(found) == 1 and {"own", "library"} <= found[0].us.keys() and len(arms := one.fastest()) == 2:
            yield from _of_problem(one, arms, found[0])


def _of_problem(one: Finals, arms: Sequence[Measurement], row: Row) -> Iterator[Difference]:
    for policy, regime in REGIMES.items():
        ours, theirs = (one.by_policy.get(policy, {}).get(arm.config.key) for arm in arms)
        if ours and theirs:
            measured = row.us["library"][regime] / row.us["own"][regime]
            share = measured / versus(theirs, ours, one.device).value - 1
            added_us = row.us["own"][regime] - ours.median_us, row.us["library"][regime] - theirs.median_us
            # -1 slices K in one kernel.
            split = theirs.config.number("split_k") > 1
            yield Difference(f"{one.problem.title} on {one.device}", one.decides, policy, share, added_us, split)


def line(found: Sequence[Difference]) -> str:
    """One line of the table, of differences of one pair of policies."""
    shares = sorted(one.share for one in found)
    low, high = shares[len(shares) // 20], shares[-1 - len(shares) // 20]
    worst = min(found, key=lambda one: one.share)
    near = sum(abs(share) <= 0.02 for share in shares)
    counted = f"{len(shares)} | {statistics.median(shares):+.3f} | {low:+.3f} | {high:+.3f} | {near}"
    return f"| {worst.decides.value} | {worst.policy.value} | {counted} | {worst.share:+.3f} | {worst.problem} |"


def added(found: Iterable[Difference]) -> Iterator[str]:
    """Lines of the second table, of products that `chain` decides."""
    by_kind: dict[tuple[str, str], list[float]] = {}
    for one in (one for one in found if one.decides is Policy.CHAIN):
        for kind, us in one.added:
            by_kind.setdefault((kind, one.policy.value), []).append(us)
    for kind, policy in sorted(by_kind, key=lambda key: (KINDS.index(key[0]), key[1])):
        times = sorted(by_kind[kind, policy])
        low, high = times[len(times) // 20], times[-1 - len(times) // 20]
        yield f"| {kind} | {policy} | {len(times)} | {statistics.median(times):+.2f} | {low:+.2f} | {high:+.2f} |"


def main() -> None:
    """Prints the tables."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--of", type=Path, nargs="+", action="append", required=True, metavar=("STORES", "PART"))
    add_out(options)
    given = options.parse_args()
    found: list[Difference] = []
    for folder, *parts in given.of:
        rows = [row for part in parts for row in Part.read(part).rows]
        for store in stores_in(folder):
            found += differences(finals_of(store), rows)
    groups: dict[tuple[str, str], list[Difference]] = {}
    for one in found:
        groups.setdefault((one.decides.value, one.policy.value), []).append(one)
    table = "\n".join([HEADER, *(line(groups[key]) for key in sorted(groups))])
    short = "\n".join([ADDED, *added(found)])
    print(f"{table}\n\n{short}")
    publish("promised", given.out, table, short, read=[path for each in given.of for path in each])


if __name__ == "__main__":
    as_command(main)
