"""Workers: registration, heartbeats, draining and leaving.

A worker belongs to the token that registered it: for every other token it does not exist. Without tokens all callers
are one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Integer, bindparam, func, or_, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, joinedload

from space.arch import arch_named
from space.devices import find_profile
from space.family import families_for
from tuner.errors import FleetError, SlotTaken, StoreError, UnknownWorker, WorkerGone
from tuner.evidence.campaign_models import CampaignProblemRow, CampaignRow, RoundRow, WorkerRow
from tuner.evidence.codec import utc
from tuner.evidence.store import Store
from tuner.evidence.studies import device_id
from tuner.fleet.campaigns.clock import now
from tuner.fleet.campaigns.names import wrong_name
from tuner.fleet.campaigns.records import TIMING, HeartbeatReply, Registration, Timing, Worker, slot_of
from tuner.fleet.queue.choice import queue_of
from tuner.fleet.queue.in_table import TableQueue, queue_name
from tuner.fleet.queue.on_postgresql import HEARTBEATS
from workers.measurement import DeviceFacts

_MOST_NAME = 100
#: Workers of one token that live or registered within the last hour, and models of all that it has rows of: every row
#: is shown for an hour, and every model is a label of metrics.
MOST_OF_A_TOKEN = 4_000
MOST_MODELS_OF_A_TOKEN = 100
#: Ids of a worker, of the round that it believes it holds, and of its token.
Beat = tuple[int, int | None, int | None]


class Workers:
    """The workers of one store."""

    def __init__(self, store: Store, timing: Timing = TIMING) -> None:
        self._store, self._timing, self._queue = store, timing, queue_of(store)

    def register(self, name: str, facts: DeviceFacts, token_id: int | None = None) -> Registration:
        """Registers a worker on one device.

        Args:
            name: of the process; unique among live workers on recorded devices.
            token_id: of the caller, to whom the worker belongs; None without tokens.

        Raises:
            FleetError: impossible facts, such as an unknown arch or one that the GPU model does not have; or the
                token has too many workers.
            SlotTaken: another live worker has this GPU, or this name on a recorded device.
        """
        check_facts(name, facts)
        slot = slot_of(name, facts)
        try:
            with self._store.transaction(writes=True) as session:
                self._check_slot(session, slot, token_id)
                moment, device = now(session), device_id(session, facts.name, facts.kind)
                _check_share(session, token_id, device, moment)
                row = WorkerRow(
                    name=name, slot=slot, queue=queue_name(facts.name, facts.arch, facts.kind),
                    device_id=device, facts=asdict(facts), status="live",
                    gone_because="", registered_at=moment, beat_at=moment, rounds=0, busy_seconds=0.0,
                    engine_id=self._queue.register(session), token_id=token_id,
                )  # fmt: skip
                session.add(row)
                session.flush()
                return Registration(row.id, self._timing.heartbeat_seconds)
        except StoreError as error:
            if not isinstance(error.__cause__, IntegrityError):
                raise
            raise SlotTaken(f"another worker has just taken {slot}: run one worker per GPU") from error

    def _check_slot(self, session: Session, slot: str, token_id: int | None) -> None:
        for other in self._read(session, WorkerRow.slot == slot, WorkerRow.status != "gone"):
            who = "a worker of another token"
            if session.get_one(WorkerRow, other.id).token_id == token_id:
                who = f"worker {other.id} ({other.name}), last heard at {other.beat_at:%H:%M:%S} UTC"
            silence = self._timing.silence_seconds
            taken = SlotTaken(
                f"{slot} belongs to {who}: stop it first; a worker that died frees it after {silence:g} s of silence"
            )
            taken.retry_after = silence
            raise taken

    def beat(self, worker_id: int, round_id: int | None = None, token_id: int | None = None) -> HeartbeatReply:
        """Records a heartbeat, and tells the worker whether to go on.

        Args:
            round_id: the round that the worker believes it holds.

        Raises:
            WorkerGone: it was silent for too long and counts as gone.
            UnknownWorker: no worker of this token has this id.
        """
        (reply,) = self.beat_all([(worker_id, round_id, token_id)])
        if isinstance(reply, WorkerGone):
            raise reply
        return reply

    def beat_all(self, beats: Sequence[Beat]) -> list[HeartbeatReply | WorkerGone]:
        """Records heartbeats of several workers, on PostgreSQL in one statement; the replies in the same order."""
        if self._store.embedded:
            return [self._beat_embedded(*beat) for beat in beats]
        workers, rounds, tokens = ([beat[column] for beat in beats] for column in range(3))
        said = {"workers": workers, "rounds": rounds, "tokens": tokens}
        heard = {tuple(row[:3]): (row[3], row[4]) for row in self._store.note(HEARTBEATS, said)}
        replies: list[HeartbeatReply | WorkerGone] = []
        for beat in beats:
            if beat in heard:
                replies.append(_reply(*heard[beat], beat[1]))
            else:
                with self._store.transaction() as session:
                    replies.append(_absent(session, beat[0], beat[2]))
        return replies

    def _beat_embedded(self, worker_id: int, round_id: int | None, token_id: int | None) -> HeartbeatReply | WorkerGone:
        try:
            with self._store.transaction(writes=True) as session:
                status = touch(session, self._queue, worker_id, token_id).status
                return _reply(status, session.scalar(_HELD, {"round": round_id, "worker": worker_id}), round_id)
        except WorkerGone as gone:
            return gone

    def drain(self, worker_id: int) -> Worker:
        """Lets a worker finish its round and leave.

        Raises:
            WorkerGone: it has left already.
            UnknownWorker: no worker has this id.
        """
        with self._store.transaction(writes=True) as session:
            row = session.scalars(_PRESENT, {"worker": worker_id}).one_or_none()
            if row is None:
                known, live = session.get(WorkerRow, worker_id), "`gemmtune worker list` lists the live ones"
                if known is None:
                    raise UnknownWorker(f"there is no worker {worker_id}: {live}")
                raise WorkerGone(f"worker {worker_id} is gone: {live}")
            row.status = "draining"
            session.flush()
            return self._read(session, WorkerRow.id == worker_id)[0]

    def leave(self, worker_id: int, token_id: int | None = None) -> None:
        """Unregisters a worker; does nothing when it is gone already.

        Raises:
            FleetError: it still holds a round, which it must report first.
            UnknownWorker: no worker of this token has this id.
        """
        with self._store.transaction(writes=True) as session:
            row = session.get(WorkerRow, worker_id, with_for_update=True)
            if row is None or row.token_id != token_id:
                raise _unknown(worker_id)
            if row.status == "gone":
                return
            if held := session.scalar(_ROUND, {"worker": worker_id}):
                raise FleetError(f"worker {worker_id} holds round {held}: report it before leaving")
            sign_off(session, self._queue, row, "left")

    def page(self, after: int = 0, limit: int = 100, gone: bool = False) -> list[Worker]:
        """Workers with an id above `after`, in order; with `gone`, also those that left or were lost."""
        with self._store.transaction() as session:
            return self._read(session, WorkerRow.id > after, *[] if gone else [WorkerRow.status != "gone"], limit=limit)

    def seen_since(self, since: datetime, limit: int) -> list[Worker]:
        """Workers that are not gone, then those that were heard at `since` or later, the newest of each first."""
        gone, heard = WorkerRow.status == "gone", WorkerRow.beat_at >= since
        with self._store.transaction() as session:
            found = self._read(session, ~gone, limit=limit, order=(WorkerRow.id.desc(),))
            left = (WorkerRow.beat_at.desc(), WorkerRow.id.desc())
            return found + self._read(session, gone, heard, limit=limit - len(found), order=left)

    def _read(
        self, session: Session, *where: ColumnElement[bool], limit: int = 1,
        order: Sequence[ColumnElement[Any]] = (WorkerRow.id.expression,),
    ) -> list[Worker]:  # fmt: skip
        held = select(RoundRow.id).where(RoundRow.worker_id == WorkerRow.id, RoundRow.status == "running")
        query = select(WorkerRow, self._queue.heartbeat_at, held.scalar_subquery()).where(*where)
        found = session.execute(query.order_by(*order).limit(limit).options(joinedload(WorkerRow.device)))
        return [
            Worker(
                row.id, row.name, row.queue, row.device.name, row.device.kind, str(row.facts["uuid"]),
                str(row.facts["driver"]), row.status, row.gone_because, utc(row.registered_at), utc(beat_at),
                row.rounds, row.busy_seconds, round_id,
            )
            for row, beat_at, round_id in found
        ]  # fmt: skip


def _check_share(session: Session, token_id: int | None, device: int, moment: datetime) -> None:
    ours = WorkerRow.token_id.is_not_distinct_from(token_id)
    counted = or_(WorkerRow.status != "gone", WorkerRow.registered_at > moment - timedelta(hours=1))
    if session.scalars(select(func.count(WorkerRow.id)).where(ours, counted)).one() >= MOST_OF_A_TOKEN:
        raise FleetError(
            f"this token has {MOST_OF_A_TOKEN:,} workers that live or registered within the last hour, the limit: use "
            f"another token for further ones"
        )
    models = set(session.scalars(select(WorkerRow.device_id).where(ours).distinct()))
    if device not in models and len(models) >= MOST_MODELS_OF_A_TOKEN:
        raise FleetError(
            f"this token has workers of {MOST_MODELS_OF_A_TOKEN} GPU models, the limit: use another token for further "
            f"ones"
        )


def check_facts(name: str, facts: DeviceFacts) -> None:
    """Checks that a worker's name and device facts are possible.

    Raises:
        FleetError: they are not, with the reason.
        SpaceError: an arch that is unknown, or for which no kernel family is built.
    """
    if wrong := wrong_name(name, _MOST_NAME):
        raise FleetError(f"worker {wrong}")
    families_for(arch_named(facts.arch).name)
    for label, word in (("name", facts.name), ("uuid", facts.uuid), ("driver", facts.driver)):
        if not 1 <= len(word) <= 80 or not word.isprintable():
            raise FleetError(f"device {label} {word[:80]!r} is invalid: give 1 to 80 printable characters")
    card = find_profile(facts.name)
    if card and card.arch.name != facts.arch:
        raise FleetError(f"{facts.name} is {card.arch.name}, the worker says {facts.arch}: it runs on another device")
    if card and facts.sm_count > card.sm_count:
        raise FleetError(
            f"{facts.name} has {card.sm_count} SMs, the worker says {facts.sm_count}: it runs on another device"
        )


class LiveWorker(NamedTuple):
    """A worker that has just been heard; its row stays locked until the transaction ends.

    Attributes:
        at: by the database's clock.
        engine_id: its number in the queue.
    """

    id: int
    status: str
    at: datetime
    queue: str
    engine_id: int
    slot: str


def touch(
    session: Session, queue: TableQueue, worker_id: int, token_id: int | None, waits: bool = False
) -> LiveWorker:
    """Records a heartbeat as part of another call.

    Args:
        waits: the call may wait for others and fail, and its heartbeat with it: those that come meanwhile count.

    Raises:
        WorkerGone: it counts as gone.
        UnknownWorker: no worker of this token has this id.
    """
    statement = queue.presence if waits else queue.heartbeat
    row = session.execute(statement, {"worker": worker_id, "token": token_id}).one_or_none()
    if row is None:
        raise _absent(session, worker_id, token_id)
    return LiveWorker(worker_id, row[0], utc(row[1]), *row[2:5])


def sign_off(session: Session, queue: TableQueue, row: WorkerRow, because: str) -> None:
    """Marks a locked worker as gone, which frees its slot."""
    row.beat_at = session.scalars(select(queue.heartbeat_at).where(WorkerRow.id == row.id)).one()
    row.status, row.gone_because = "gone", because
    if row.engine_id is not None:
        queue.unregister(session, row.engine_id)
        row.engine_id = None


#: A worker that is not gone, locked.
_PRESENT = select(WorkerRow).where(WorkerRow.id == bindparam("worker"), WorkerRow.status != "gone").with_for_update()
#: The round that a worker holds.
_ROUND = select(RoundRow.id).where(RoundRow.worker_id == bindparam("worker"), RoundRow.status == "running")
#: Status of the campaign whose round a worker holds.
_HELD = (
    select(CampaignRow.status)
    .join(CampaignProblemRow, CampaignProblemRow.campaign_id == CampaignRow.id)
    .join(RoundRow, RoundRow.campaign_problem_id == CampaignProblemRow.id)
    .where(RoundRow.id == bindparam("round", type_=Integer), RoundRow.worker_id == bindparam("worker"))
    .where(RoundRow.status == "running")
)


def _reply(status: str, campaign: str | None, round_id: int | None) -> HeartbeatReply:
    # A paused campaign lets its running rounds end; a cancelled one stops them.
    stop = round_id is not None and campaign not in ("running", "paused", "finished")
    return HeartbeatReply(stop, drain=status == "draining")


def _absent(session: Session, worker_id: int, token_id: int | None) -> WorkerGone:
    """Why a worker cannot go on: it is gone, or no worker of this token has the id."""
    row = session.get(WorkerRow, worker_id)
    return _gone(worker_id) if row and row.token_id == token_id else _unknown(worker_id)


def _gone(worker_id: int) -> WorkerGone:
    return WorkerGone(f"worker {worker_id} counts as gone: register again")


def _unknown(worker_id: int) -> UnknownWorker:
    return UnknownWorker(f"this token has no worker {worker_id}: register one")
