"""Compares the analytic estimate with the recordings, problem by problem.

python -m benchmarks.estimate --out benchmarks/results/estimate_h200.md

The constants of `space/families/sm90_wgmma/estimate.py` that have no other source were fitted to these
recordings, so this shows the fit, not the accuracy on unrecorded problems.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.command import as_command
from benchmarks.published import add_out, publish
from benchmarks.search.replay import Replay, class_of, read_replays
from benchmarks.search.report import Curves
from space.devices import profile_named
from space.family import family_named

#: Candidates slower than the best by more than this factor do not matter for a choice.
NEAR = 1.5


@dataclass(frozen=True)
class Fit:
    """Comparison of one problem's estimates with its times.

    Attributes:
        first, of_4, of_16: speed of the best of the first 1, 4 and 16 choices, relative to the fastest candidate.
        scatter: standard deviation of log(time / estimate) of the candidates near the best.
        level: its mean.
    """

    first: float
    of_4: float
    of_16: float
    scatter: float
    level: float


def main() -> None:
    """Prints the table and publishes it if asked."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--recordings", type=Path, default=Path("recorded/h200"))
    options.add_argument("--family", default="sm90_wgmma")
    add_out(options)
    given = options.parse_args()
    replays = [replay for replay in read_replays([given.recordings], family_named(given.family)) if replay.configs]
    text = _table(replays, [fit(replay, given.family) for replay in replays])
    print(text)
    publish("estimate", given.out, text, read=[given.recordings])


def fit(replay: Replay, family_name: str) -> Fit:
    """Compares the estimates of a replay's candidates with their times."""
    family = family_named(family_name)
    columns = family.columns(replay.problem, replay.configs)
    estimate_us = family.estimate_us(columns, profile_named(replay.device))
    shares = replay.shares(list(np.argsort(estimate_us, kind="stable")), 16)
    near = replay.time_us <= NEAR * replay.best_us
    error = np.log(replay.time_us[near] / estimate_us[near])
    return Fit(float(shares[0]), float(shares[3]), float(shares[15]), float(error.std()), float(error.mean()))


def _table(replays: list[Replay], fits: list[Fit]) -> str:
    rows = [
        f"| {r.problem.title} | {class_of(r.problem)} | {len(r.configs)} | "
        f"{f.first:.3f} | {f.of_4:.3f} | {f.of_16:.3f} | {f.scatter:.3f} | {f.level:+.3f} |"
        for r, f in zip(replays, fits, strict=True)
    ]
    curves = Curves(np.array([(f.first, f.of_4, f.of_16) for f in fits]))
    shares = " | ".join(f"{mean:.3f} / {low:.3f}" for mean, low in zip(curves.mean, curves.low, strict=True))
    return "\n".join([
        f"{len(replays)} problems recorded on {replays[0].device}. Share of the fastest recorded candidate that the "
        f"estimate's first choices reach; scatter and mean of log(time / estimate) within {NEAR} times the best.", "",
        "| problem | class | candidates | first | best of 4 | best of 16 | scatter | level |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |", *rows,
        f"| geometric mean / 5th percentile | | | {shares} | {np.mean([f.scatter for f in fits]):.3f} | |",
    ])  # fmt: skip


if __name__ == "__main__":
    as_command(main)
