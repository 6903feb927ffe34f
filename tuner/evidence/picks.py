"""Picks: which of several correct measurements wins, deterministically.

Rivals within the tie band of the fastest are ordered by a fixed rule, never by noise: our own families before the
library (their source can be exported), then by how much slower they are in steps of half a percent, if they are slower
turn by turn at all, then by the analytic estimate, which is free of noise, then by the family's enumeration order.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from space.config import Config
from space.devices import find_profile
from space.problem import Problem
from space.registry import family_named
from tuner.errors import NothingCorrect
from tuner.evidence.records import Best, Ratio, StoredMeasurement
from tuner.evidence.stats import by_turn, ratio, surely_slower
from workers.measurement import Measurement, Outcome

#: Rivals this close to the fastest tie with it.
TIE_BAND: Final = 0.02
#: Step that ranks rivals within the tie band.
STEP: Final = 0.005
#: The library's family: a baseline, served only when none of ours ties with it.
LIBRARY: Final = "cublaslt"


def pick(rivals: Iterable[Measurement], problem: Problem, device: str) -> Measurement:
    """The winner among correct measurements of one problem on one device, of one stage and policy.

    Raises:
        ValueError: none of them is correct.
    """
    correct = [rival for rival in rivals if rival.outcome is Outcome.CORRECT]
    if not correct:
        raise ValueError("no rival is correct: nothing can win")
    limits = find_profile(device)

    def order(standing: Standing) -> tuple[bool, int, float, str, tuple[int, ...]]:
        config = standing.measurement.config
        family = family_named(config.family)
        estimate = float(family.estimate_us(family.columns(problem, [config], limits), limits)[0]) if limits else 0.0
        steps = int(standing.behind / STEP) if standing.surely else 0
        return config.family == LIBRARY, steps, round(estimate, 3), config.family, enumeration_order(config)

    tied = (one for one in standings(correct) if one.behind <= TIE_BAND or not one.surely)
    return min(tied, key=order).measurement


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a rival stands.

    Attributes:
        behind: how much slower than the fastest, relative to its time.
        surely: whether its samples show it to be slower at all.
    """

    measurement: Measurement
    behind: float
    surely: bool


def standings(correct: Sequence[Measurement]) -> list[Standing]:
    """Each rival compared with the fastest, turn by turn: at the power limit, turns differ more than rivals do."""
    typical = [statistics.median(shares) for shares in by_turn([rival.samples_us for rival in correct])]
    first = min(range(len(correct)), key=lambda place: (typical[place], correct[place].config.key))
    return [
        Standing(rival, typical[place] / typical[first] - 1, surely_slower(rival.samples_us, correct[first].samples_us))
        for place, rival in enumerate(correct)
    ]


def enumeration_order(config: Config) -> tuple[int, ...]:
    """A config's position in its family's enumeration: a sort key that depends on the config alone."""
    return tuple(knob.domain.index(config[knob.name]) for knob in family_named(config.family).knobs)


def best_of(problem: Problem, finals: Sequence[StoredMeasurement], tried: int, failed: dict[str, int]) -> Best:
    """The winner of interleaved finals, with its evidence.

    Args:
        finals: of one problem on one device, the library's last: its first choice, then its best.
        tried, failed: of the screening before.

    Raises:
        NothingCorrect: no finalist is correct.
    """
    rivals = [entry for entry in finals if entry.measurement.outcome is Outcome.CORRECT]
    if not rivals:
        reasons = "; ".join(sorted({entry.measurement.detail for entry in finals})) or "there is none"
        raise NothingCorrect(f"none of the finalists is correct when measured again: {reasons}")
    device = rivals[0].device
    winner = pick([entry.measurement for entry in rivals], problem, device)
    behind = sorted((entry.measurement for entry in rivals), key=lambda rival: rival.median_us)
    library = [entry.measurement for entry in rivals if entry.measurement.config.family == LIBRARY]
    return Best(
        problem, device, rivals[0].device_kind,
        winner=next(entry for entry in rivals if entry.measurement is winner),
        versus_first=_versus(library[:1], winner), versus_best=_versus(library[-1:], winner),
        runner_up=next((rival.config for rival in behind if rival is not winner), None), tried=tried, failed=failed,
    )  # fmt: skip


def _versus(library: Sequence[Measurement], winner: Measurement) -> Ratio | None:
    return ratio(library[0].samples_us, winner.samples_us) if library else None
