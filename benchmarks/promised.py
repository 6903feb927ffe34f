"""What finals promised of ours against the library, beside what a torch program then measured of the same two configs.

python -m benchmarks.promised --of benchmarks/stores/h200 benchmarks/results/parts/deployed_h200_1_of_4.json …

Each `--of` names a folder of stores and the parts of `benchmarks.deployed` that were measured from them. Of every
problem with both arms, the ratio of the fastest of the library's to the fastest of ours in the finals is compared with
torch's ratio of these arms, regime by regime: `chain` with `chain`, `sustained` with `alone`, `burst` with `burst`.
A difference is torch's ratio over the finals', less one; problems are parted by the policy that decides them.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.deployed_table import Part, Row
from benchmarks.published import add_out, publish
from benchmarks.restored import stores_in
from space.registry import is_own
from tuner.evidence.picks import ahead, versus
from tuner.evidence.records import Best
from tuner.evidence.store import Store
from workers.measurement import Measurement, Policy

#: Regimes of `benchmarks.deployed`, by the policy that stands for them.
REGIMES: Final = {Policy.CHAIN: "chain", Policy.SUSTAINED: "alone", Policy.BURST: "burst"}
HEADER: Final = (
    "| decided by | compared under | problems | median | 5th percentile | 95th | within 2 % | worst | of |\n"
    "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |"
)


@dataclass(frozen=True, slots=True)
class Difference:
    """Of one problem under one policy.

    Attributes:
        decides: the policy that decides what is served.
        share: torch's ratio of ours to the library over the finals', less one.
    """

    problem: str
    decides: Policy
    policy: Policy
    share: float


def differences(store: Store, rows: Sequence[Row]) -> Iterator[Difference]:
    """Of each problem of the store that has one row, of both arms."""
    for best in (each for each in store.bests() if each.served and each.device_kind == "cuda"):
        found = [row for row in rows if (row.problem, row.dtype) == (best.problem.shape, best.problem.dtype)]
        if len(found) == 1 and {"own", "library"} <= found[0].us.keys():
            yield from _of_problem(store, best, found[0])


def _of_problem(store: Store, best: Best, row: Row) -> Iterator[Difference]:
    rivals = [stored.measurement for stored in store.finals_beside(best.winner.id)]
    arms = [_fastest(rivals, best.policy, own) for own in (True, False)]
    for policy, regime in REGIMES.items():
        ours, theirs = (_under(rivals, policy, arm) for arm in arms)
        if ours and theirs:
            measured = row.us["library"][regime] / row.us["own"][regime]
            share = measured / versus(theirs, ours, best.device).value - 1
            yield Difference(f"{best.problem.title} on {best.device}", best.policy, policy, share)


def _fastest(rivals: Sequence[Measurement], policy: Policy, own: bool) -> Measurement | None:
    """As `benchmarks.deployed` chooses its arms."""
    of_arm = [one for one in rivals if one.policy is policy and is_own(one.config) is own]
    return ahead(of_arm)[0] if of_arm else None


def _under(rivals: Sequence[Measurement], policy: Policy, arm: Measurement | None) -> Measurement | None:
    return next((one for one in rivals if arm and one.policy is policy and one.config == arm.config), None)


def line(found: Sequence[Difference]) -> str:
    """One line of the table, of differences of one pair of policies."""
    shares = sorted(one.share for one in found)
    low, high = shares[len(shares) // 20], shares[-1 - len(shares) // 20]
    worst = min(found, key=lambda one: one.share)
    near = sum(abs(share) <= 0.02 for share in shares)
    counted = f"{len(shares)} | {statistics.median(shares):+.3f} | {low:+.3f} | {high:+.3f} | {near}"
    return f"| {worst.decides.value} | {worst.policy.value} | {counted} | {worst.share:+.3f} | {worst.problem} |"


def main() -> None:
    """Prints the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--of", type=Path, nargs="+", action="append", required=True, metavar=("STORES", "PART"))
    add_out(options)
    given = options.parse_args()
    found: list[Difference] = []
    for folder, *parts in given.of:
        rows = [row for part in parts for row in Part.read(part).rows]
        for store in stores_in(folder):
            found += differences(store, rows)
    groups: dict[tuple[str, str], list[Difference]] = {}
    for one in found:
        groups.setdefault((one.decides.value, one.policy.value), []).append(one)
    table = "\n".join([HEADER, *(line(groups[key]) for key in sorted(groups))])
    print(table)
    publish("promised", given.out, table, read=[path for each in given.of for path in each])


if __name__ == "__main__":
    main()
