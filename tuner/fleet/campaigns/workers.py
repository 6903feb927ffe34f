"""Workers: who is there, on which device, and since when they were last heard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from functools import cache
from typing import Literal, NamedTuple

from sqlalchemy import Integer, bindparam, select, text, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, joinedload
from sqlalchemy.sql.dml import ReturningUpdate

from space.arch import DEVICES, GPU_MODELS, arch_named
from space.family import families_for
from tuner.errors import FleetError, SlotTaken, StoreError, WorkerGone
from tuner.evidence.campaign_models import CampaignProblemRow, CampaignRow, RoundRow, WorkerRow
from tuner.evidence.codec import utc
from tuner.evidence.store import Store
from tuner.evidence.studies import device_id
from tuner.fleet.campaigns.backlog import queue_name
from tuner.fleet.campaigns.clock import now, sql_now
from tuner.fleet.campaigns.records import TIMING, HeartbeatReply, Registration, Timing, Worker
from tuner.fleet.queue.choice import queue_of
from tuner.fleet.queue.port import Queue
from workers.measurement import DeviceFacts

_MOST_NAME = 100


class Workers:
    """The workers of one store: they register, are heard of, drain and leave."""

    def __init__(self, store: Store, timing: Timing = TIMING, queue: Queue | None = None) -> None:
        self._store, self._timing = store, timing
        self._queue = queue or queue_of(store)

    def register(self, name: str, facts: DeviceFacts) -> Registration:
        """A new worker on one device.

        Args:
            name: of the process; two live workers never share one.

        Raises:
            FleetError: facts that can't be: an unknown arch, or one that the GPU model doesn't have.
            SlotTaken: another live worker has this GPU, or this name on a recorded device.
        """
        check_facts(name, facts)
        slot = f"gpu:{facts.uuid}" if facts.kind == "cuda" else f"recorded:{name}"
        try:
            with self._store.transaction(writes=True) as session:
                taken = select(WorkerRow).where(WorkerRow.slot == slot, WorkerRow.status != "gone")
                if (other := session.scalars(taken).one_or_none()) is not None:
                    raise self._taken(slot, other)
                moment = now(session)
                row = WorkerRow(
                    name=name, slot=slot, queue=queue_name(facts.name, facts.arch, facts.kind),
                    device_id=device_id(session, facts.name, facts.kind), facts=asdict(facts), status="live",
                    gone_because="", registered_at=moment, beat_at=moment, rounds=0, busy_seconds=0.0,
                    engine_id=self._queue.enlist(session),
                )  # fmt: skip
                session.add(row)
                session.flush()
                return Registration(row.id, self._timing.heartbeat_seconds)
        except StoreError as error:
            if not isinstance(error.__cause__, IntegrityError):
                raise
            raise SlotTaken(f"{slot} was taken by another worker at this moment: one worker a GPU") from error

    def beat(self, worker_id: int, round_id: int | None = None) -> HeartbeatReply:
        """A sign of life, and what the worker should know.

        Args:
            round_id: of the round that it believes to hold.

        Raises:
            WorkerGone: it was silent for too long and counts as gone.
        """
        (heard,) = self.beat_all([(worker_id, round_id)])
        if isinstance(heard, WorkerGone):
            raise heard
        return heard

    def beat_all(self, beats: Sequence[tuple[int, int | None]]) -> list[HeartbeatReply | WorkerGone]:
        """Several workers' signs of life, with one statement on PostgreSQL; each one's answer, in their order."""
        if self._store.embedded:
            # SQLite can't say all of it in one statement, and has few workers.
            return [self._beat_embedded(worker_id, round_id) for worker_id, round_id in beats]
        said = {"workers": [worker_id for worker_id, _ in beats], "rounds": [round_id for _, round_id in beats]}
        heard = {row[0]: (row[1], row[2]) for row in self._store.note(_BEATS, said)}
        return [
            _orders(*heard[worker_id], round_id) if worker_id in heard else _gone(worker_id)
            for worker_id, round_id in beats
        ]

    def _beat_embedded(self, worker_id: int, round_id: int | None) -> HeartbeatReply | WorkerGone:
        try:
            with self._store.transaction(writes=True) as session:
                status = touch(session, worker_id).status
                return _orders(status, session.scalar(_HELD, {"round": round_id, "worker": worker_id}), round_id)
        except WorkerGone as gone:
            return gone

    def drain(self, worker_id: int) -> Worker:
        """Lets a worker finish its round and leave.

        Raises:
            WorkerGone: it has left already, or never was there.
        """
        with self._store.transaction(writes=True) as session:
            row = session.scalars(_PRESENT, {"worker": worker_id}).one_or_none()
            if row is None:
                raise WorkerGone(f"worker {worker_id} is gone: `gemmtune worker list` names those that are not")
            row.status = "draining"
            session.flush()
            return _worker(row, _running(session, [worker_id]).get(worker_id))

    def leave(self, worker_id: int) -> None:
        """A worker says goodbye; nothing happens when it is gone already.

        Raises:
            FleetError: it still holds a round, which it has to report first.
        """
        with self._store.transaction(writes=True) as session:
            row = session.get(WorkerRow, worker_id, with_for_update=True)
            if row is None or row.status == "gone":
                return
            if held := _running(session, [worker_id]).get(worker_id):
                raise FleetError(f"worker {worker_id} holds round {held}: report it before leaving")
            part(session, self._queue, row, "left")

    def page(self, after: int = 0, limit: int = 100, gone: bool = False) -> list[Worker]:
        """Workers with a number above `after`, in order; those that are gone only if asked for."""
        query = select(WorkerRow).where(WorkerRow.id > after).order_by(WorkerRow.id).limit(limit)
        query = query if gone else query.where(WorkerRow.status != "gone")
        with self._store.transaction() as session:
            rows = session.scalars(query.options(joinedload(WorkerRow.device))).all()
            running = _running(session, [row.id for row in rows])
            return [_worker(row, running.get(row.id)) for row in rows]

    def _taken(self, slot: str, other: WorkerRow) -> SlotTaken:
        return SlotTaken(
            f"{slot} belongs to worker {other.id} ({other.name}), last heard at {utc(other.beat_at):%H:%M:%S} UTC: "
            f"stop that one; one that died is forgotten after {self._timing.silence_seconds:g} s of silence"
        )


def check_facts(name: str, facts: DeviceFacts) -> None:
    """What a worker says of itself can be true.

    Raises:
        FleetError: it can't, with the reason.
        SpaceError: an arch that is unknown, or that no kernel family is built for.
    """
    if not 1 <= len(name) <= _MOST_NAME or not name.isprintable():
        raise FleetError(f"worker name {name[:80]!r} is none: give 1 to {_MOST_NAME} printable characters")
    families_for(arch_named(facts.arch).name)
    for label, word in (("name", facts.name), ("uuid", facts.uuid), ("driver", facts.driver)):
        if not 1 <= len(word) <= 80 or not word.isprintable():
            raise FleetError(f"device {label} {word[:80]!r} is none: give 1 to 80 printable characters")
    model = GPU_MODELS.get(facts.name)
    if model and model.arch != facts.arch:
        raise FleetError(f"{facts.name} is {model.arch}, the worker says {facts.arch}: it has not the device it names")
    if facts.name in DEVICES and facts.sm_count > DEVICES[facts.name].sm_count:
        most = DEVICES[facts.name].sm_count
        raise FleetError(f"{facts.name} has {most} SMs, the worker says {facts.sm_count}: it has not that device")


class LiveWorker(NamedTuple):
    """A worker that has just been heard: its row is locked until the transaction ends.

    Attributes:
        at: by the database's clock.
        engine_id: its number at the queue's engine.
    """

    status: str
    at: datetime
    queue: str
    engine_id: int | None


def touch(session: Session, worker_id: int) -> LiveWorker:
    """Notes that a worker was heard.

    Raises:
        WorkerGone: it counts as gone.
    """
    row = session.execute(_touching(session.get_bind().dialect.name), {"worker": worker_id}).one_or_none()
    if row is None:
        raise _gone(worker_id)
    return LiveWorker(row.status, utc(row.beat_at), row.queue, row.engine_id)


def part(session: Session, queue: Queue, row: WorkerRow, because: str) -> None:
    """Marks a locked worker as gone; its slot is free from now on."""
    row.status, row.gone_because = "gone", because
    queue.dismiss(session, row.engine_id)
    row.engine_id = None


@cache
def _touching(dialect: str) -> ReturningUpdate[str, datetime, str, int | None]:
    heard = update(WorkerRow).where(WorkerRow.id == bindparam("worker"), WorkerRow.status != "gone")
    told = heard.values(beat_at=sql_now(dialect)).returning(
        WorkerRow.status, WorkerRow.beat_at, WorkerRow.queue, WorkerRow.engine_id
    )
    return told.execution_options(synchronize_session=False)


#: A worker that is not gone, locked.
_PRESENT = (
    select(WorkerRow)
    .where(WorkerRow.id == bindparam("worker"), WorkerRow.status != "gone")
    .options(joinedload(WorkerRow.device))
    .with_for_update(of=WorkerRow)
)
#: Status of the campaign whose round a worker holds.
_HELD = (
    select(CampaignRow.status)
    .join(CampaignProblemRow, CampaignProblemRow.campaign_id == CampaignRow.id)
    .join(RoundRow, RoundRow.campaign_problem_id == CampaignProblemRow.id)
    .where(RoundRow.id == bindparam("round", type_=Integer), RoundRow.worker_id == bindparam("worker"))
    .where(RoundRow.status == "running")
)
#: Notes that workers were heard; the status of each, and that of the campaign whose round it holds. It waits for
#: nobody: a row that is locked belongs to a claim or a report of that worker, which notes by itself that it was
#: heard, and all other workers' beats would wait with it.
_BEATS = text("""
    WITH said AS (
        SELECT * FROM unnest(CAST(:workers AS integer[]), CAST(:rounds AS integer[])) AS said (worker, round)
    ), free AS (
        SELECT worker.id FROM worker
        WHERE worker.id IN (SELECT worker FROM said) AND worker.status <> 'gone'
        FOR NO KEY UPDATE SKIP LOCKED
    ), heard AS (
        UPDATE worker SET beat_at = clock_timestamp() FROM free WHERE worker.id = free.id
    )
    SELECT worker.id, worker.status, (
        SELECT campaign.status
        FROM round
        JOIN campaign_problem ON campaign_problem.id = round.campaign_problem_id
        JOIN campaign ON campaign.id = campaign_problem.campaign_id
        WHERE round.id = said.round AND round.worker_id = worker.id AND round.status = 'running'
    )
    FROM said JOIN worker ON worker.id = said.worker
    WHERE worker.status <> 'gone'
""")


def _orders(status: str, campaign: str | None, round_id: int | None) -> HeartbeatReply:
    # A paused campaign lets its running rounds end; only a cancelled one has no use for them.
    stop = round_id is not None and campaign not in ("running", "paused", "finished")
    return HeartbeatReply(stop, drain=status == "draining")


def _gone(worker_id: int) -> WorkerGone:
    return WorkerGone(f"worker {worker_id} counts as gone: register again")


def _running(session: Session, workers: list[int]) -> dict[int, int]:
    query = select(RoundRow.worker_id, RoundRow.id).where(RoundRow.status == "running", RoundRow.worker_id.in_(workers))
    return {worker: round_id for worker, round_id in session.execute(query) if worker is not None}


def _worker(row: WorkerRow, round_id: int | None) -> Worker:
    status: Literal["live", "draining"] = "draining" if row.status == "draining" else "live"
    return Worker(
        row.id, row.name, row.queue, row.device.name, row.device.kind, str(row.facts["uuid"]),
        str(row.facts["driver"]), "gone" if row.status == "gone" else status, row.gone_because,
        utc(row.registered_at), utc(row.beat_at), row.rounds, row.busy_seconds, round_id,
    )  # fmt: skip
