"""The fleet: every worker with its round and its last clocks, and the work that waits for each device."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from tuner.evidence.campaign_models import CampaignProblemRow, CampaignRow, RoundRow
from tuner.evidence.models import DeviceRow, MeasurementRow
from tuner.evidence.store import Store
from tuner.fleet.campaigns.clock import now
from tuner.fleet.campaigns.records import Clocks, Worker
from tuner.fleet.campaigns.workers import Workers
from tuner.views.rounds import ProgressBoard, RoundFacts, facts, selected

#: Workers that are gone are listed for this long.
_SHOWN: Final = timedelta(hours=1)
#: Workers that are listed.
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
    """The fleet at one moment; `workers` are counts by status."""

    at: datetime
    workers: dict[str, int]
    devices: tuple[DeviceFacts, ...]
    items: tuple[WorkerFacts, ...]


def fleet_facts(store: Store, workers: Workers, board: ProgressBoard) -> FleetFacts:
    """The fleet now: workers that are live or draining, and those that left within the last hour."""
    listed: list[Worker] = []
    with store.transaction() as session:
        moment = now(session)
    after = 0
    while len(listed) < MOST_WORKERS and (part := workers.page(after, 500, gone=True)):
        after = part[-1].id
        listed += [worker for worker in part if worker.status != "gone" or worker.beat_at >= moment - _SHOWN]
    with store.transaction() as session:
        held = {each.worker_id: each for each in facts(session, selected().where(RoundRow.status == "running"), board)}
        clocks, waiting = _clocks(session, [worker.id for worker in listed]), _waiting(session)
    items = tuple(
        WorkerFacts(worker, held.get(worker.id), clocks.get(worker.id), _busy_share(worker, moment))
        for worker in listed
    )
    return FleetFacts(moment, dict(Counter(worker.status for worker in listed)), _devices(items, waiting), items)


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
    studies = select(RoundRow.worker_id, RoundRow.study_id).where(RoundRow.id.in_(last_round))
    found: dict[int, Clocks] = {}
    for worker, study in session.execute(studies).all():
        if worker is None:
            continue
        query = select(MeasurementRow.clocks).where(
            MeasurementRow.study_id == study, MeasurementRow.worker_id == worker, MeasurementRow.outcome == "correct"
        )
        said: dict[str, Any] | None = session.scalar(query.order_by(MeasurementRow.id.desc()).limit(1))
        if said:
            found[worker] = Clocks(**said | {"throttle_reasons": tuple(said.get("throttle_reasons", ()))})
    return found


def _waiting(session: Session) -> dict[tuple[str, str], int]:
    query = (
        select(DeviceRow.name, DeviceRow.kind, func.count())
        .join(CampaignProblemRow, CampaignProblemRow.device_id == DeviceRow.id)
        .join(CampaignRow, CampaignRow.id == CampaignProblemRow.campaign_id)
        .where(CampaignRow.status == "running", CampaignProblemRow.status == "waiting")
        .group_by(DeviceRow.name, DeviceRow.kind)
    )
    return {(name, kind): count for name, kind, count in session.execute(query)}


def _devices(items: tuple[WorkerFacts, ...], waiting: dict[tuple[str, str], int]) -> tuple[DeviceFacts, ...]:
    names = sorted({*waiting, *((item.worker.device, item.worker.device_kind) for item in items)})
    found = []
    for name, kind in names:
        ours = [item for item in items if (item.worker.device, item.worker.device_kind) == (name, kind)]
        status = Counter(item.worker.status for item in ours)
        busy = sum(item.round is not None for item in ours)
        found.append(DeviceFacts(name, kind, status["live"], status["draining"], busy, waiting.get((name, kind), 0)))
    return tuple(found)
