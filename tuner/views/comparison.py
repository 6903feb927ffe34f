"""How two stored measurements compare."""

from __future__ import annotations

from sqlalchemy import select

from tuner.errors import NotComparable
from tuner.evidence.models import MeasurementRow
from tuner.evidence.physics import out_of_range
from tuner.evidence.picks import versus
from tuner.evidence.records import Ratio
from tuner.evidence.store import Store
from tuner.views.studies import measurement
from workers.measurement import Outcome


def compared(store: Store, number: int, baseline: int) -> Ratio:
    """How many times as fast as another measurement one is; paired where both are of the same finals.

    Raises:
        UnknownMeasurement: none has such an id, or its numbers can't be true.
        NotComparable: they are of two problems, policies or devices, or one is not correct or can't be true.
    """
    found = {each: measurement(store, each) for each in (number, baseline)}
    for each, stored in found.items():
        one = stored.measurement
        if one.outcome is not Outcome.CORRECT:
            said = f"the outcome of measurement {each} is {one.outcome.value}"
            raise NotComparable(f"{said}: only times of correct ones compare")
        if said := out_of_range(one):
            raise NotComparable(f"measurement {each} can't be true: {said}")
    ours, theirs = found[number], found[baseline]
    for what, mine, other in (
        ("problem", ours.measurement.problem_key, theirs.measurement.problem_key),
        ("policy", ours.measurement.policy.value, theirs.measurement.policy.value),
        ("device", ours.device, theirs.device),
    ):
        if mine != other:
            said = f"measurement {number} is of {what} {mine}, {baseline} of {other}"
            raise NotComparable(f"{said}: only times of one problem on one device under one policy compare")
    one_run = _of_one_run(store, number, baseline)
    return versus(theirs.measurement, ours.measurement, ours.device, one_run=one_run)


def _of_one_run(store: Store, *numbers: int) -> bool:
    """Whether measurements are of the same finals."""
    query = select(MeasurementRow.study_id, MeasurementRow.series, MeasurementRow.stage).distinct()
    with store.transaction() as session:
        runs = session.execute(query.where(MeasurementRow.id.in_(numbers))).all()
    return len(runs) == 1 and runs[0].stage == "final"
