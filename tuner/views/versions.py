"""Versions: numbers that change with the data behind a view."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from tuner.evidence import changes, codec
from tuner.evidence.campaign_models import CampaignRow
from tuner.evidence.models import BestChangeRow, BestRow, DeviceRow, MeasurementRow, ProblemRow, RevocationRow, StudyRow
from tuner.evidence.store import Store

Version = tuple[object, ...]
#: Changes that a store counts, and stores that are told apart: a number of both is one of those that JavaScript has.
CHANGES: Final = 2**31
STORES: Final = 2**53 // CHANGES


def of_problem(store: Store, key: str, device: str) -> Version:
    """The version of a problem's measurements and bests on a device, over all campaigns."""
    its_id = select(ProblemRow.id).where(ProblemRow.key == key)
    return _read(store, _measured(its_id), *_bests(its_id, select(DeviceRow.id).where(DeviceRow.name == device)))


def of_study(store: Store, study_id: int) -> Version:
    """The version of a study, with the measurements and bests of its problem: another study may find a build wrong."""
    its_problem = select(StudyRow.problem_id).where(StudyRow.id == study_id)
    return _read(
        store, _measured(its_problem), *_bests(its_problem, select(DeviceRow.id)),
        select(StudyRow.status).where(StudyRow.id == study_id),
        # One that was reopened and ended again has its old status, and another reason.
        select(StudyRow.stopped_because).where(StudyRow.id == study_id),
    )  # fmt: skip


def of_campaign(store: Store, campaign_id: int | None) -> bool:
    """The version of a campaign's list of problems, which never changes once it is there; of no campaign for None."""
    if campaign_id is None:
        return False
    with store.transaction() as session:
        return session.scalar(select(CampaignRow.id).where(CampaignRow.id == campaign_id)) is not None


def of_store(session: Session) -> int:
    """A number below `STORES` that hardly another store has: of its restore, else of the moment of its first study."""
    if (restored := changes.read(session).get(changes.RESTORED)) is not None:
        return restored % STORES
    first = session.scalar(select(StudyRow.created_at).order_by(StudyRow.id).limit(1))
    return round(codec.utc(first).timestamp() * 1e6) % STORES if first else 0


def is_of_store(session: Session, number: int) -> bool:
    """Whether a number is `of_store`'s of this store: one that had no study had 0, and may have another by now."""
    return number == of_store(session) or (number == 0 and changes.RESTORED not in changes.read(session))


def _measured(problem: Select[int]) -> Select[Any]:
    return select(func.max(MeasurementRow.id)).where(MeasurementRow.problem_id.in_(problem))


def _bests(problem: Select[int], devices: Select[int]) -> list[Select[Any]]:
    """The last change of the bests that there are, and of those that are gone: the former may be of another device."""
    there = select(func.max(BestRow.version)).where(BestRow.problem_id.in_(problem), BestRow.device_id.in_(devices))
    gone = select(func.max(BestChangeRow.version)).where(
        BestChangeRow.problem_id.in_(problem), BestChangeRow.device_id.in_(devices),
        BestChangeRow.measurement_id.is_(None),
    )  # fmt: skip
    return [there, gone]


def _read(store: Store, *queries: Select[Any]) -> Version:
    with store.transaction() as session:
        found: list[object] = [session.scalar(query) for query in queries]
        revoked = session.scalar(select(func.max(RevocationRow.id)))
        # Another store that was restored may have the same numbers.
        return *found, revoked, of_store(session)
