"""Refutations: a build that was wrong once is no rival any more, however often it was right.

A race, or a counter that is not reset, spoils few launches: the same program may pass one verification and fail the
next. A `wrong_result` takes whatever the same build of the same config measured for that problem on that GPU model out
of the running, before it and after it, unless it is revoked. A study in which most was wrong shows a bad GPU or driver,
and refutes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Final

from sqlalchemy import ColumnElement, ScalarSelect, exists, func, select
from sqlalchemy.orm import Session, aliased

from tuner.evidence.models import ConfigRow, DeviceRow, MeasurementRow, ProblemRow, RevokedRow, StudyRow
from tuner.evidence.records import Outcome, StoredMeasurement

#: (text of a config, digest of its build) of each that was found wrong.
Refuted = Set[tuple[str, str]]
NONE_WRONG: Final[Refuted] = frozenset()

_WRONG, _BESIDE = aliased(MeasurementRow), aliased(MeasurementRow)


def _beside(outcome: Outcome) -> ScalarSelect[int]:
    """How many measurements of the same study ended so."""
    ended = select(func.count()).where(_BESIDE.study_id == _WRONG.study_id, _BESIDE.outcome == outcome.value)
    return ended.scalar_subquery()


# A library's algorithm has no build: it is verified wherever it runs.
_COUNTS: Final = (
    _WRONG.outcome == Outcome.WRONG_RESULT.value, _WRONG.build_digest != "",
    ~exists().where(RevokedRow.measurement_id == _WRONG.id),
    _beside(Outcome.CORRECT) > _beside(Outcome.WRONG_RESULT),
)  # fmt: skip
_SAME_BUILD: Final = (
    _WRONG.problem_id == MeasurementRow.problem_id, _WRONG.device_id == MeasurementRow.device_id,
    _WRONG.config_id == MeasurementRow.config_id, _WRONG.build_digest == MeasurementRow.build_digest,
)  # fmt: skip
#: Condition on a measurement: another one found its build wrong.
REFUTED: Final[ColumnElement[bool]] = exists().where(*_SAME_BUILD, *_COUNTS)


def refuting(session: Session, measurement_id: int) -> int | None:
    """The number of the first measurement that found the build of this one wrong; None where none did."""
    query = select(_WRONG.id).join(MeasurementRow, (MeasurementRow.id == measurement_id)).where(*_SAME_BUILD, *_COUNTS)
    return session.scalar(query.order_by(_WRONG.id).limit(1))


def refuted_for(session: Session, study_id: int) -> Refuted:
    """Builds that were found wrong on the problem and the GPU model of a study, in any study."""
    study = session.get_one(StudyRow, study_id)
    query = select(ConfigRow.key, _WRONG.build_digest).join(_WRONG, _WRONG.config_id == ConfigRow.id)
    here = _WRONG.problem_id == study.problem_id, _WRONG.device_id == study.device_id
    return {(key, digest) for key, digest in session.execute(query.where(*here, *_COUNTS))}


def refuted_in(session: Session, study_id: int) -> set[str]:
    """Texts of the configs that were right when a study screened them, and whose build was found wrong elsewhere."""
    query = select(ConfigRow.key).join(MeasurementRow, MeasurementRow.config_id == ConfigRow.id)
    screened = MeasurementRow.study_id == study_id, MeasurementRow.stage == "screen"
    return set(session.scalars(query.where(*screened, MeasurementRow.outcome == Outcome.CORRECT.value, REFUTED)))


def wrong_for(session: Session, key: str, device: str) -> frozenset[str]:
    """Texts of the configs that were found wrong on a problem and a GPU model, by any build and in any study.

    It is of those that nothing proves: where most was wrong, no best is taken back, and none is predicted either.
    """
    query = select(ConfigRow.key).join(MeasurementRow, MeasurementRow.config_id == ConfigRow.id)
    query = query.join(ProblemRow, ProblemRow.id == MeasurementRow.problem_id)
    query = query.join(DeviceRow, DeviceRow.id == MeasurementRow.device_id)
    there = ProblemRow.key == key, DeviceRow.name == device, MeasurementRow.outcome == Outcome.WRONG_RESULT.value
    revoked = exists().where(RevokedRow.measurement_id == MeasurementRow.id)
    return frozenset(session.scalars(query.where(*there, ~revoked)))


def unrefuted(finals: Sequence[StoredMeasurement], wrong: Refuted) -> list[StoredMeasurement]:
    """Finals without those whose build was found wrong."""
    return [final for final in finals if (final.measurement.config.key, final.measurement.build_digest) not in wrong]
