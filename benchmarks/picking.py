"""Judges how winners are picked: picks one from half of the finals' turns and compares it on the other half.

python -m benchmarks.picking --out benchmarks/results/picking_h200.md

Reads the finals of every recording. A winner is picked from their even turns and one from their odd turns.
`same`: both halves name one config. `apart`: how far apart the two winners are over all turns. `behind`: how far the
winner of one half is behind the fastest of the other half. Real picks see twice as many turns.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks.command import WrongInput, as_command
from benchmarks.published import add_out, publish
from space.problem import Problem
from tuner.evidence.picks import LIBRARY, pick, precedence, standings
from workers.measurement import Measurement, Outcome
from workers.recording import read_recording

#: Longer products run at the power limit.
LONG_US: Final = 100.0
HEADER: Final = (
    "| products | | same | apart, mean | at most | behind, mean | at most |\n"
    "| --- | --- | --- | --- | --- | --- | --- |"
)


@dataclass(frozen=True)
class Halves:
    """One problem's winners of both halves, as shares of a time."""

    long: bool
    same: bool
    apart: float
    behind: tuple[float, float]


def halves(problem: Problem, finals: Sequence[Measurement], device: str) -> Halves:
    """The winners of the even and of the odd turns."""
    even, odd = ([replace(one, samples_us=one.samples_us[first::2]) for one in finals] for first in (0, 1))
    of_even, of_odd = (half.index(pick(half, problem, device)) for half in (even, odd))
    whole = standings(finals, device)
    return Halves(
        min(one.median_us for one in finals) >= LONG_US, of_even == of_odd,
        abs(whole[of_even].behind - whole[of_odd].behind),
        (standings(odd, device)[of_even].behind, standings(even, device)[of_odd].behind),
    )  # fmt: skip


def finals_of(folder: Path) -> Iterator[tuple[Problem, list[Measurement], str]]:
    """Each recorded problem that has several finals of our own families under the first policy that decides, with them
    and with the device. A rival that fell behind after one block has no turn for the other half.
    """
    for path in sorted(folder.glob("*.parquet")):
        recording = read_recording(path)
        finals = [one for one, _ in recording.measurements if one.stage == "final" and one.outcome is Outcome.CORRECT]
        of_policy = {policy: [one for one in finals if one.policy is policy and one.config.family != LIBRARY]
                     for policy in precedence(recording.problem, recording.facts.name)}  # fmt: skip
        own = [one for one in next(filter(None, of_policy.values()), []) if len(one.samples_us) > 1]
        if len(own) > 1:
            yield recording.problem, own, recording.facts.name


def row(name: str, chosen: Sequence[Halves]) -> str:
    """One line of the table."""
    apart, behind = [one.apart for one in chosen], [share for one in chosen for share in one.behind]
    same = statistics.mean(one.same for one in chosen)
    return (
        f"| {name} | {len(chosen)} | {same:.0%} | {statistics.mean(apart):.2%} | "
        f"{max(apart):.2%} | {statistics.mean(behind):.2%} | {max(behind):.2%} |"
    )


def main() -> None:
    """Prints the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--recordings", type=Path, default=Path("recorded/h200"))
    add_out(options)
    given = options.parse_args()
    made = [halves(*one) for one in finals_of(given.recordings)]
    if not made:
        raise WrongInput(f"no recording in {given.recordings} has several finals: give another folder")
    lines = [HEADER]
    for name, long in ((f"of {LONG_US:g} µs and more", True), ("shorter", False)):
        if chosen := [one for one in made if one.long == long]:
            lines.append(row(name, chosen))
    print(*lines, sep="\n")
    publish("picking", given.out, "\n".join(lines), read=[given.recordings])


if __name__ == "__main__":
    as_command(main)
