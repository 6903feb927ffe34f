"""Measures when the search stops by expected gain, its share of the best then, and whether its odds are right.

python -m benchmarks.search.stopping --out benchmarks/results/search_stopping_h200.md

Follows a study (`tuner.studying.screening.Search`) over recorded problems, each with a model of the others.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import optuna

from benchmarks.command import as_command, positive
from benchmarks.published import add_out, publish
from benchmarks.search.replay import Replay, read_replays
from benchmarks.search.setting import Setting, without_problem
from space.config import Config
from space.family import family_named
from tuner.prediction.grow import TREES
from tuner.studying.guidance import Guidance
from tuner.studying.order import MARGIN, Outlook
from tuner.studying.records import Budget
from tuner.studying.screening import Search
from workers.measurement import Measurement, Outcome, Policy, Verification

GAINS: Final = (0.02, 0.01, 0.005, 0.002)
#: Measurements after which the odds are compared with the real remaining gain.
ASKED_AT: Final = (12, 16, 24, 40, 64, 96)
#: Edges of the classes of odds.
CLASSES: Final = (0.0, 0.05, 0.2, 0.5, 1.0)


@dataclass(frozen=True)
class Odds:
    """The stated chance that an untried candidate beats the best by the margin, and whether there was one."""

    chance: float
    gain: float
    existed: bool
    gained: float


def main() -> None:
    """Prints both tables and writes them with their command."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--recordings", type=Path, default=Path("recorded/h200"))
    options.add_argument("--family", default="sm90_wgmma")
    options.add_argument("--trees", type=positive, default=TREES)
    options.add_argument("--most", type=positive, default=128)
    add_out(options)
    given = options.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    family = family_named(given.family)
    setting = Setting(read_replays([given.recordings], family), family, 1, given.trees)
    text = "\n\n".join([
        f"{len(setting.replays)} recorded problems, each searched with a model of the others and with the analytic "
        f"model alone; at most {given.most} measurements.",
        _stops(setting, given.most), _calibration(setting, given.most),
    ])  # fmt: skip
    print(text)
    publish("search.stopping", given.out, text, read=[given.recordings])


def _stops(setting: Setting, most: int) -> str:
    lines = ["| expectation | stop below | measured: mean, most | share of the best: mean, least | never stopped |",
             "| --- | ---: | ---: | ---: | ---: |"]  # fmt: skip
    for learned in (True, False):
        for gain in GAINS:
            budget = Budget(candidates=most, gain=gain)
            ends = [(_walk(setting, replay, learned, budget)[0], replay) for replay in setting.replays]
            counts = np.array([len(search.tried) for search, _ in ends])
            shares = np.array([_share(search, replay) for search, replay in ends])
            never = sum(len(search.tried) >= min(most, len(replay.configs)) for search, replay in ends)
            expectation = "learned" if learned else "analytic"
            lines.append(f"| {expectation} | {gain:.1%} | {counts.mean():.0f}, {counts.max()} | {shares.mean():.3f}, "
                         f"{shares.min():.3f} | {never} of {len(ends)} |")  # fmt: skip
    return "\n".join(lines)


def _calibration(setting: Setting, most: int) -> str:
    odds = [
        entry for replay in setting.replays for learned in (True, False)
        for entry in _walk(setting, replay, learned, Budget(candidates=most))[1]
    ]  # fmt: skip
    lines = [f"| chance told that an untried candidate is more than {MARGIN:.0%} faster | times told | it existed | "
             "expected gain | real gain |", "| --- | ---: | ---: | ---: | ---: |"]  # fmt: skip
    for low, high in pairwise(CLASSES):
        found = [entry for entry in odds if low <= entry.chance < high or entry.chance == high == 1.0]
        if found:
            told, gain = np.mean([e.chance for e in found]), np.mean([e.gain for e in found])
            existed, gained = np.mean([e.existed for e in found]), np.mean([e.gained for e in found])
            lines.append(f"| {low:.0%} to {high:.0%} (mean {told:.0%}) | {len(found)} | {existed:.0%} | {gain:.2%} | "
                         f"{gained:.2%} |")  # fmt: skip
    return "\n".join(lines)


def _walk(setting: Setting, replay: Replay, learned: bool, budget: Budget) -> tuple[Search, list[Odds]]:
    """A study on the recording, with its outlook at `ASKED_AT`."""
    guidance = Guidance()
    if learned:
        teachers = without_problem(replay, setting.replays)
        guidance = Guidance(setting.model(teachers, 0), setting.winners(replay, teachers))
    search = Search(replay.problem, replay.device, replay.configs, budget, guidance=guidance)
    times = dict(zip(replay.configs, replay.time_us, strict=True))
    odds = []
    while batch := search.propose():
        for config in batch:
            search.tell(_measured(replay, config, float(times[config])))
        if len(search.tried) in ASKED_AT and (outlook := search.outlook()):
            odds.append(_judged(outlook, search, replay))
    return search, odds


def _judged(outlook: Outlook, search: Search, replay: Replay) -> Odds:
    tried = {entry.config for entry in search.tried}
    best = min(entry.median_us for entry in search.tried)
    rest = [float(us) for config, us in zip(replay.configs, replay.time_us, strict=True) if config not in tried]
    left = min(rest, default=best)
    return Odds(outlook.chance, outlook.gain, left < best * (1 - outlook.margin), max(1 - left / best, 0.0))


def _share(search: Search, replay: Replay) -> float:
    return replay.best_us / min(entry.median_us for entry in search.tried)


def _measured(replay: Replay, config: Config, time_us: float) -> Measurement:
    """The recorded time as the measurement that a worker would have sent."""
    key = replay.problem.key
    if not np.isfinite(time_us):
        return Measurement(key, config, "screen", Policy.ROUNDS, Outcome.LAUNCH, detail="it failed when recorded")
    clean = Verification(replay.problem.m * replay.problem.n, 0, 0.0, "recorded")
    return Measurement(key, config, "screen", Policy.ROUNDS, Outcome.CORRECT, (time_us,), verification=clean)


if __name__ == "__main__":
    as_command(main)
