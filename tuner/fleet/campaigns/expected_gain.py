"""Expected gain: the time that tuning may save a program, by which campaigns with counts are ordered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
from sqlalchemy import select
from sqlalchemy.orm import Session

from space.devices import DEFAULT_DEVICE, DeviceProfile, find_profile, profile_named
from space.problem import DISTANCE_DIGITS, Problem
from space.rank import roofline_us
from tuner.errors import StoreError
from tuner.evidence import codec
from tuner.evidence.models import BestRow, DeviceRow, ProblemRow
from tuner.fleet.campaigns.records import CampaignRequest

#: Library's time / ours where nothing alike was measured: what its first choices leave on the suite's average.
USUAL_RATIO: Final = 1.04
#: Bests whose ratios are compared; the newest ones.
_MOST_KNOWN: Final = 5_000
#: Problems that one statement looks for.
_AT_ONCE: Final = 1_000
#: A best further away says nothing of a problem (sum of |log2| of the ratios of the extents).
_REACH: Final = 3.0


class Alike:
    """Measured problems that differ in their extents alone, with their ratios to the library's first choice.

    A campaign asks for the nearest of thousands, thousands of times: all are compared at once.
    """

    def __init__(self, found: Sequence[tuple[Problem, float]]) -> None:
        # Of several that are as near, the one that leaves least counts.
        ordered = sorted(found, key=lambda entry: entry[1])
        self._ratios = [ratio for _, ratio in ordered]
        self._logs: npt.NDArray[np.float64] = np.log2([problem.extents for problem, _ in ordered])

    def nearest(self, problem: Problem) -> tuple[float, float]:
        """How far the nearest one is (`Problem.distance`), and its ratio."""
        away = np.abs(self._logs - np.log2(problem.extents)).sum(axis=1).round(DISTANCE_DIGITS)
        place = int(away.argmin())
        return float(away[place]), self._ratios[place]


@dataclass(frozen=True, slots=True)
class Known:
    """What was measured on a device model.

    Attributes:
        own: keys of the problems that have a best, of a GPU or of replays, as the campaign wants them.
        alike: ratios by everything but the extents.
    """

    own: frozenset[str] = frozenset()
    alike: dict[tuple[str, str], Alike] = field(default_factory=dict)


def by_gain(session: Session, request: CampaignRequest, device: str, kind: str) -> Sequence[tuple[Problem, int]]:
    """The request's problems with their counts, largest expected savings first; in the given order without counts."""
    if not request.counts:
        return [(problem, 1) for problem in request.problems]
    profile = find_profile(device) or profile_named(DEFAULT_DEVICE)
    known = Known(_measured(session, request, device, kind), _alike(session, device))
    listed = list(zip(request.problems, request.counts, strict=True))
    return sorted(listed, key=lambda entry: -expected_gain_us(entry[0], entry[1], profile, known))


def expected_gain_us(problem: Problem, count: int, profile: DeviceProfile, known: Known) -> float:
    """Time that tuning may save: runs × least time × what the library left on the nearest measured problem.

    A problem that was measured before has won its share already.
    """
    if problem.key in known.own:
        return 0.0
    alike = known.alike.get(problem.key_around_shape())
    away, ratio = alike.nearest(problem) if alike else (_REACH + 1, USUAL_RATIO)
    left = max(ratio, 1.0) if away <= _REACH else USUAL_RATIO
    return count * roofline_us(problem, profile) * (left - 1.0)


def _measured(session: Session, request: CampaignRequest, device: str, kind: str) -> frozenset[str]:
    """Keys of the request's problems that have a best, however many there are."""
    query = (
        select(ProblemRow.key)
        .join(BestRow, BestRow.problem_id == ProblemRow.id)
        .join(DeviceRow, DeviceRow.id == BestRow.device_id)
        .where(DeviceRow.name == device, DeviceRow.kind == kind, BestRow.served)
    )
    keys = [problem.key for problem in request.problems]
    parts = (keys[start : start + _AT_ONCE] for start in range(0, len(keys), _AT_ONCE))
    return frozenset(key for part in parts for key in session.scalars(query.where(ProblemRow.key.in_(part))))


def _alike(session: Session, device: str) -> dict[tuple[str, str], Alike]:
    """What the newest bests of a device model say, those of replays as well as a GPU's."""
    rows = session.execute(
        select(ProblemRow.key, BestRow.versus_first)
        .join(BestRow, BestRow.problem_id == ProblemRow.id)
        .join(DeviceRow, DeviceRow.id == BestRow.device_id)
        .where(DeviceRow.name == device, BestRow.served)
        .order_by(BestRow.version.desc())
        .limit(_MOST_KNOWN)
    ).all()
    ratios: dict[tuple[str, str], list[tuple[Problem, float]]] = {}
    for key, versus in rows:
        try:
            problem = codec.problem_of(key)
        except StoreError:
            continue  # a newer version's
        if found := codec.ratio(versus):
            ratios.setdefault(problem.key_around_shape(), []).append((problem, found.value))
    return {around: Alike(found) for around, found in ratios.items()}
