"""Studies in a session: begun once per key and generation, finished, reopened."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from space.problem import Problem
from tuner.evidence.models import DeviceRow, ProblemRow, StudyRow
from tuner.evidence.records import StudyKey, StudyRecord, StudyStatus
from tuner.evidence.rows import id_of, insert_new


def begin(session: Session, key: StudyKey, problem: int, device: int, fresh: bool = False) -> StudyRecord:
    """The latest study of `key` in any status, or a new one.

    Args:
        problem, device: row ids of the key's problem and device.
        fresh: begin a new study even if one exists.
    """
    same = {"problem_id": problem, "device_id": device, "policy": key.policy.value, "family": key.family,
            "source": key.source}  # fmt: skip
    query = select(StudyRow).filter_by(**same).order_by(StudyRow.generation.desc()).limit(1)
    latest = session.scalars(query).one_or_none()
    if latest is None or fresh:
        # Another process may begin the same study now: both then use that one.
        insert_new(session, StudyRow, [same | _begun(latest.generation + 1 if latest else 0)])
        latest = session.scalars(query).one()
    return StudyRecord(latest.id, key, StudyStatus(latest.status), latest.stopped_because)


def renew(session: Session, study: StudyRow) -> None:
    """Begins the next generation of a study that is its key's latest, whatever this version can read of the key."""
    same = {name: getattr(study, name) for name in ("problem_id", "device_id", "policy", "family", "source")}
    if study.generation == session.scalar(select(func.max(StudyRow.generation)).filter_by(**same)):
        insert_new(session, StudyRow, [same | _begun(study.generation + 1)])


def _begun(generation: int) -> dict[str, Any]:
    return {"generation": generation, "status": StudyStatus.RUNNING.value, "stopped_because": "",
            "created_at": datetime.now(UTC)}  # fmt: skip


def set_status(session: Session, study_id: int, status: StudyStatus, because: str) -> None:
    """Marks a study as running or finished, with the reason why it stopped."""
    change = update(StudyRow).where(StudyRow.id == study_id)
    session.execute(change.values(status=status.value, stopped_because=because))


def problem_id(session: Session, problem: Problem) -> int:
    """Row id of a problem; inserted if missing."""
    return id_of(session, ProblemRow, problem_columns(problem), unique=("key",))


def problem_columns(problem: Problem) -> dict[str, Any]:
    """The columns of a problem's row."""
    m, n, k = problem.extents
    return {"key": problem.key, "m": m, "n": n, "k": k, "kind": problem.kind, "fields": problem.fields()}


def device_id(session: Session, name: str, kind: str) -> int:
    """Row id of a device model; inserted if missing."""
    return id_of(session, DeviceRow, {"name": name, "kind": kind})
