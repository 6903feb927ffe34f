"""How two stored measurements compare."""

from __future__ import annotations

from sqlalchemy import select

from tuner.errors import NotComparable
from tuner.evidence.models import MeasurementRow
from tuner.evidence.picks import versus
from tuner.evidence.records import Ratio
from tuner.evidence.store import Store
from tuner.views.studies import measurement


def compared(store: Store, number: int, baseline: int) -> Ratio:
    """How many times as fast as another measurement one is; paired where both are of the same finals.

    Raises:
        UnknownMeasurement: none has such an id, or its numbers can't be true.
        NotComparable: they are of two problems or policies, or one has no time.
    """
    found = {each: measurement(store, each) for each in (number, baseline)}
    for each, stored in found.items():
        if not stored.measurement.samples_us:
            outcome = stored.measurement.outcome.value
            raise NotComparable(f"measurement {each} has no time, its outcome is {outcome}: choose another")
    ours, theirs = found[number].measurement, found[baseline].measurement
    for what, one, other in (
        ("problem", ours.problem_key, theirs.problem_key), ("policy", ours.policy.value, theirs.policy.value),
    ):  # fmt: skip
        if one != other:
            said = f"measurement {number} is of {what} {one}, {baseline} of {other}"
            raise NotComparable(f"{said}: only times of one problem under one policy compare")
    return versus(theirs, ours, found[number].device, one_run=_of_one_run(store, number, baseline))


def _of_one_run(store: Store, *numbers: int) -> bool:
    """Whether measurements are of the same finals."""
    query = select(MeasurementRow.study_id, MeasurementRow.series, MeasurementRow.stage).distinct()
    with store.transaction() as session:
        runs = session.execute(query.where(MeasurementRow.id.in_(numbers))).all()
    return len(runs) == 1 and runs[0].stage == "final"
