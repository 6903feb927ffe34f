"""Remaining: the bests that the finals in the running make, where one that was best may be no longer."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from space.devices import find_profile
from space.problem import Problem
from tuner.errors import NothingCorrect
from tuner.evidence import measurements
from tuner.evidence.best_changes import Past, judge, rolled_back
from tuner.evidence.measurements import IN_THE_RUNNING
from tuner.evidence.models import MeasurementRow
from tuner.evidence.physics import impossible
from tuner.evidence.picks import bests_of
from tuner.evidence.records import Best, StoredMeasurement

#: Conditions on a measurement that may be best.
FINALS: Final = (MeasurementRow.stage == "final", MeasurementRow.outcome == "correct", IN_THE_RUNNING)


def remaining_bests(session: Session, of: Mapping[str, int], problem: Problem, device: str) -> dict[str, Best]:
    """The bests by policy that the finals in the running would make, in their order.

    Slow where there are many finals: it bootstraps each.
    """
    profile = find_profile(device)
    if profile is None:
        return {}
    undone = rolled_back(session, of)
    query = select(MeasurementRow).filter_by(**of).where(*FINALS)
    numbered = session.execute(query.with_only_columns(MeasurementRow.id, MeasurementRow.series))
    series = {number: place for number, place in numbered}
    finals: dict[tuple[int, int], list[StoredMeasurement]] = defaultdict(list)
    # What another version measured is no rival here: this one could not serve it.
    for final in measurements.read(session, query):
        # What came since the numbers were read is read again under the lock.
        if final.id in series and final.id not in undone and not impossible(problem, profile, final.measurement):
            finals[final.study_id, series[final.id]].append(final)
    standing: dict[str, Best] = {}
    past: dict[str, list[Past]] = defaultdict(list)
    for rivals in finals.values():
        tried = _screened(session, rivals[0].study_id)
        failed = {outcome: count for outcome, count in sorted(tried.items()) if outcome != "correct"}
        try:
            found = bests_of(problem, rivals, tried.total(), failed)
        except NothingCorrect:
            continue  # rules forbid all of these by now
        for best in found:
            policy = best.policy.value
            if judge(standing.get(policy), best, past[policy])[0]:
                if old := standing.get(policy):
                    past[policy].append(Past(old.winner.id, old.winner.provenance))
                standing[policy] = best
    return standing


def _screened(session: Session, study_id: int) -> Counter[str]:
    query = select(MeasurementRow.outcome).where(MeasurementRow.study_id == study_id, MeasurementRow.stage == "screen")
    return Counter(session.scalars(query.where(IN_THE_RUNNING)))
