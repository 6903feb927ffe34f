"""Gains: the time that tuning may save a program, by which campaigns with counts are ordered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from space.devices import DEFAULT_DEVICE, DeviceProfile, find_profile, profile_named
from space.problem import Problem
from space.rank import roofline_us
from tuner.evidence.codec import problem_of
from tuner.evidence.models import BestRow, DeviceRow, ProblemRow
from tuner.fleet.campaigns.records import CampaignRequest

#: Library's time / ours where nothing alike was measured: what its first choices leave on the suite's average.
USUAL_RATIO: Final = 1.04
#: Bests whose ratios are compared; the newest ones.
_MOST_KNOWN: Final = 5_000
#: A best further away says nothing of a problem (sum of |log2| of the ratios of the extents).
_REACH: Final = 3.0


def by_gain(session: Session, request: CampaignRequest, device: str) -> Sequence[tuple[Problem, int]]:
    """The request's problems with their counts, largest expected savings first; in the given order without counts."""
    if not request.counts:
        return [(problem, 1) for problem in request.problems]
    profile = find_profile(device) or profile_named(DEFAULT_DEVICE)
    known = _ratios(session, device)
    listed = list(zip(request.problems, request.counts, strict=True))
    return sorted(listed, key=lambda entry: -expected_gain_us(entry[0], entry[1], profile, known))


def expected_gain_us(
    problem: Problem, count: int, profile: DeviceProfile, known: dict[tuple[str, str], list[tuple[Problem, float]]]
) -> float:
    """Time that tuning may save: runs × least time × what the library left on the nearest measured problem.

    A problem that was measured before has won its share already.
    """
    alike = known.get(problem.key_around_shape(), [])
    away, ratio = min(((problem.distance(other), ratio) for other, ratio in alike), default=(_REACH + 1, USUAL_RATIO))
    if away == 0.0:
        return 0.0
    left = max(ratio, 1.0) if away <= _REACH else USUAL_RATIO
    return count * roofline_us(problem, profile) * (left - 1.0)


def _ratios(session: Session, device: str) -> dict[tuple[str, str], list[tuple[Problem, float]]]:
    """Ratios to the library's first choice on a device model, by everything but the extents."""
    rows = session.execute(
        select(ProblemRow.key, BestRow.versus_first)
        .join(BestRow, BestRow.problem_id == ProblemRow.id)
        .join(DeviceRow, DeviceRow.id == BestRow.device_id)
        .where(DeviceRow.name == device, BestRow.served)
        .order_by(BestRow.version.desc())
        .limit(_MOST_KNOWN)
    )
    found: dict[tuple[str, str], list[tuple[Problem, float]]] = {}
    for key, versus in rows:
        if versus:
            problem = problem_of(key)
            found.setdefault(problem.key_around_shape(), []).append((problem, float(versus["value"])))
    return found
