"""How near predictions and the first measurements of tunes came to what the whole tunes found.

python -m benchmarks.predicted benchmarks/stores/h100_other --out benchmarks/results/predicted_other_h100.md

Reads the backups of stores in a folder. Of the tune behind each best that is served it takes the screening of our own
families: the time of the fastest candidate as a share of that of the config that an answer would predict, and of the
fastest among the first candidates that were measured. A prediction that was tried and is not correct counts as 0. A
tune that did not try it is left out of its line, and counted. The fastest of a tune is not the fastest of all that is
legal: `benchmarks.search` knows that, of recordings.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.command import as_command
from benchmarks.deployed_table import mean
from benchmarks.published import add_out, publish
from benchmarks.restored import stores_in
from space.devices import profile_named
from space.family import is_own
from tuner.evidence.records import Best
from tuner.evidence.store import Store
from tuner.prediction.files import model_for
from tuner.prediction.portfolio import first_choice
from workers.measurement import Measurement, Outcome

#: Measurements after which tunes are looked at; 0 stands for the prediction.
AFTER: Final = (0, 4, 16, 32)


@dataclass(frozen=True, slots=True)
class Tune:
    """One tune's screening.

    Attributes:
        shares: the fastest time as a share of that known after each number of `AFTER`; None for a prediction that was
            not tried.
    """

    title: str
    shares: tuple[float | None, ...]

    @classmethod
    def of(cls, best: Best, own: Sequence[Measurement]) -> Tune | None:
        """The tune that found a best, by what it screened of ours in order; None if nothing of that was correct, or no
        model knows the device."""
        correct = [one for one in own if one.outcome is Outcome.CORRECT]
        model = model_for(best.device).model
        if not correct or model is None:
            return None
        fastest = min(one.median_us for one in correct)
        found = first_choice(model, best.problem, profile_named(best.device))
        tried = {one.config: one for one in own}
        chosen = tried.get(found.config) if found else None
        shares: list[float | None] = [_share(fastest, [chosen]) if chosen else None]
        shares += [_share(fastest, own[:count]) for count in AFTER[1:]]
        return cls(best.problem.title, tuple(shares))


def _share(fastest: float, measured: Sequence[Measurement]) -> float:
    times = [one.median_us for one in measured if one.outcome is Outcome.CORRECT]
    return fastest / min(times) if times else 0.0


def tunes_in(store: Store) -> Iterator[Tune]:
    """Of each problem the tune behind the best that is served."""
    for best in store.bests():
        if tune := Tune.of(best, own_screened(store, best)):
            yield tune


def own_screened(store: Store, best: Best) -> list[Measurement]:
    """What the tune behind a best screened of our own families, in order."""
    screened = (stored.measurement for stored in store.measurements_of(best.winner.study_id, "screen"))
    return [one for one in screened if is_own(one.config)]


def spread(shares: Sequence[float]) -> tuple[float, float, float]:
    """The geometric mean, the 5th percentile and the least of shares, of which some may be 0."""
    ordered = sorted(shares)
    return mean(ordered), ordered[len(ordered) // 20], ordered[0]


def table(tunes: Sequence[Tune]) -> Iterator[str]:
    """A line for each number of measurements."""
    yield "| known after | tunes | mean | 5th percentile | worst | which |"
    yield "| --- | ---: | ---: | ---: | ---: | --- |"
    for place, count in enumerate(AFTER):
        told = [(share, tune.title) for tune in tunes if (share := tune.shares[place]) is not None]
        if told:
            mean, low, least = spread([share for share, _ in told])
            yield (
                f"| {f'{count} measurements' if count else 'the prediction'} | {len(told)} | {mean:.3f} "
                f"| {low:.3f} | {least:.3f} | {min(told)[1]} |"
            )
    untried = sum(tune.shares[0] is None for tune in tunes)
    yield ""
    yield f"{untried} of {len(tunes)} tunes did not try today's prediction and are not in its line."


def main() -> None:
    """Prints the tables."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path, help="with files of `gemmtune backup`")
    add_out(options)
    given = options.parse_args()
    said = "\n".join(table([tune for store in stores_in(given.folder) for tune in tunes_in(store)]))
    print(said)
    publish("predicted", given.out, said, read=[given.folder])


if __name__ == "__main__":
    as_command(main)
