"""The fleet: every worker with its round and its last clocks, and the work that waits for each device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import and_, func, or_, select
from sqlalchemy.orm import Session

from tuner.evidence.campaign_models import CampaignProblemRow, CampaignRow, RoundRow, WorkerRow
from tuner.evidence.models import DeviceRow, MeasurementRow
from tuner.evidence.store import Store
from tuner.fleet.campaigns.clock import now
from tuner.fleet.campaigns.records import Clocks, Worker
from tuner.fleet.campaigns.workers import Workers
from tuner.views.rounds import ProgressBoard, RoundFacts, facts, selected
from workers.measurement import from_document

#: Workers that are gone are listed for this long.
_SHOWN: Final = timedelta(hours=1)
#: Workers that are listed; all are counted.
MOST_WORKERS: Final = 2_000


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """A worker with what it does.

    Attributes:
        round: the one that it runs.
        last_clocks: of its last measurement; None before the first, or without clocks.
        busy_share: share of its life spent in rounds that ended.
    """

    worker: Worker
    round: RoundFacts | None
    last_clocks: Clocks | None
    busy_share: float


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """The workers of one device model, and the problems of running campaigns that wait for it."""

    device: str
    device_kind: str
    live: int
    draining: int
    busy: int
    waiting_problems: int


@dataclass(frozen=True, slots=True)
class FleetFacts:
    """The fleet at one moment; `workers` are counts by status, `items` those that are listed."""

    at: datetime
    workers: dict[str, int]
    devices: tuple[DeviceFacts, ...]
    items: tuple[WorkerFacts, ...]


@dataclass(frozen=True, slots=True)
class _Count:
    """Workers of one device model and status; `busy` ones run a round."""

    device: str
    device_kind: str
    status: str
    workers: int
    busy: int


def fleet_facts(store: Store, workers: Workers, board: ProgressBoard) -> FleetFacts:
    """The fleet now: workers that are live or draining, then those that left within the last hour, newest first."""
    with store.transaction() as session:
        moment = now(session)
    listed = workers.seen_since(moment - _SHOWN, MOST_WORKERS)
    with store.transaction() as session:
        counts, waiting = _counts(session, moment - _SHOWN), _waiting(session)
        held = {each.worker_id: each for each in facts(session, selected().where(RoundRow.status == "running"), board)}
        clocks = _clocks(session, [worker.id for worker in listed])
    items = tuple(
        WorkerFacts(worker, held.get(worker.id), clocks.get(worker.id), _busy_share(worker, moment))
        for worker in listed
    )
    statuses = Counter[str]()
    for count in counts:
        statuses[count.status] += count.workers
    return FleetFacts(moment, dict(statuses), _devices(counts, waiting), items)


def _busy_share(worker: Worker, moment: datetime) -> float:
    ended = worker.beat_at if worker.status == "gone" else moment
    lived = (ended - worker.registered_at).total_seconds()
    return min(worker.busy_seconds / lived, 1.0) if lived > 0 else 0.0


def _clocks(session: Session, workers: list[int]) -> dict[int, Clocks]:
    """The clocks of each worker's last measurement, read by the rounds that it ended last."""
    last_round = (
        select(func.max(RoundRow.id)).where(RoundRow.worker_id.in_(workers), RoundRow.study_id.is_not(None))
        .group_by(RoundRow.worker_id)
    )  # fmt: skip
    last_clocks = (
        select(MeasurementRow.clocks)
        .where(
            MeasurementRow.study_id == RoundRow.study_id, MeasurementRow.worker_id == RoundRow.worker_id,
            MeasurementRow.outcome == "correct",
        )
        .order_by(MeasurementRow.id.desc()).limit(1)
    )  # fmt: skip
    said = select(RoundRow.worker_id, last_clocks.scalar_subquery()).where(RoundRow.id.in_(last_round))
    return {worker: from_document(Clocks, clocks) for worker, clocks in session.execute(said) if clocks}


def _counts(session: Session, since: datetime) -> list[_Count]:
    """The workers that are not gone, and those that were heard since."""
    running = and_(RoundRow.worker_id == WorkerRow.id, RoundRow.status == "running")
    query = (
        select(DeviceRow.name, DeviceRow.kind, WorkerRow.status, func.count(WorkerRow.id), func.count(RoundRow.id))
        .join(WorkerRow, WorkerRow.device_id == DeviceRow.id)
        .outerjoin(RoundRow, running)
        .where(or_(WorkerRow.status != "gone", WorkerRow.beat_at >= since))
        .group_by(DeviceRow.name, DeviceRow.kind, WorkerRow.status)
    )
    return [_Count(*row) for row in session.execute(query)]


def _waiting(session: Session) -> dict[tuple[str, str], int]:
    query = (
        select(DeviceRow.name, DeviceRow.kind, func.count())
        .join(CampaignProblemRow, CampaignProblemRow.device_id == DeviceRow.id)
        .join(CampaignRow, CampaignRow.id == CampaignProblemRow.campaign_id)
        .where(CampaignRow.status == "running", CampaignProblemRow.status == "waiting")
        .group_by(DeviceRow.name, DeviceRow.kind)
    )
    return {(name, kind): count for name, kind, count in session.execute(query)}


def _devices(counts: Sequence[_Count], waiting: dict[tuple[str, str], int]) -> tuple[DeviceFacts, ...]:
    found = []
    for name, kind in sorted({*waiting, *((count.device, count.device_kind) for count in counts)}):
        ours = {count.status: count for count in counts if (count.device, count.device_kind) == (name, kind)}
        live, draining = (ours[status].workers if status in ours else 0 for status in ("live", "draining"))
        busy = sum(count.busy for count in ours.values())
        found.append(DeviceFacts(name, kind, live, draining, busy, waiting.get((name, kind), 0)))
    return tuple(found)
