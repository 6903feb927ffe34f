"""Campaigns: created once per request. While one runs, and only then, the queue has a job for each waiting problem."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from space.devices import profile_named
from space.errors import FamilyError, ProfileError
from space.family import families_for, families_taking
from tuner.errors import CampaignEnded, CampaignError, KeyReused, StoreError, UnknownCampaign
from tuner.evidence.campaign_models import CampaignProblemRow, CampaignRow, WorkerRow
from tuner.evidence.codec import utc
from tuner.evidence.models import DeviceRow, ProblemRow
from tuner.evidence.rows import ids_by_key
from tuner.evidence.store import Store
from tuner.evidence.studies import device_id, problem_columns
from tuner.fleet.campaigns.clock import now
from tuner.fleet.campaigns.expected_gain import by_gain
from tuner.fleet.campaigns.records import Campaign, CampaignBudget, CampaignRequest, CampaignStatus
from tuner.fleet.queue.choice import queue_of
from tuner.fleet.queue.in_table import queue_name
from workers.measurement import from_document

MOST_KEY = 200


class Campaigns:
    """The campaigns of one store."""

    def __init__(self, store: Store) -> None:
        self._store, self._queue = store, queue_of(store)

    def create(
        self, request: CampaignRequest, idempotency_key: str | None = None, owner: str = ""
    ) -> tuple[Campaign, bool]:
        """Creates a campaign with its problems and their jobs in one transaction.

        Args:
            idempotency_key: repeating a key with the same request returns the campaign that it created before.
            owner: whose key it is, as `of_token` says it; keys of different owners never meet.

        Returns:
            The campaign, and whether this call created it.

        Raises:
            CampaignError: an unknown device, or a malformed key.
            FamilyError: no kernel family takes a problem's kind.
            KeyReused: the key was used with another request.
        """
        if idempotency_key is not None and not (
            1 <= len(idempotency_key) <= MOST_KEY and idempotency_key.isprintable()
        ):
            raise CampaignError(f"idempotency key {idempotency_key[:80]!r}: give 1 to {MOST_KEY} printable characters")
        for kind in {problem.kind for problem in request.problems}:
            families_taking(kind)
        try:
            return self._create(request, idempotency_key, owner)
        except StoreError as error:
            # Another caller created it with the same key between our read and our write.
            if idempotency_key is None or not isinstance(error.__cause__, IntegrityError):
                raise
            return self._create(request, idempotency_key, owner)

    def _create(self, request: CampaignRequest, key: str | None, owner: str) -> tuple[Campaign, bool]:
        digest = digest_of(request)
        with self._store.transaction(writes=True, slow=True) as session:
            if key is not None and (row := _created(session, key, owner, digest)):
                if row.request_digest != digest:
                    raise KeyReused(
                        f"idempotency key {key!r} created campaign {row.id} from another request: use a new key for "
                        f"a new campaign"
                    )
                return campaign_of(row), False
            queues = [(queue_for(session, name, kind), name, kind) for name, kind in request.devices]
            row = CampaignRow(
                name=request.name, status=CampaignStatus.RUNNING.value, stopped_because="", priority=request.priority,
                budget=asdict(request.budget), idempotency_key=key and owned(key, owner),
                request_digest=digest, created_at=now(session), finished_at=None,
            )  # fmt: skip
            session.add(row)
            session.flush()
            _add_problems(session, row.id, request, queues)
            self._queue.align(session)
            return campaign_of(row), True

    def run(self, request: CampaignRequest, again: bool = False) -> Campaign:
        """The campaign that ran this request last; a new one if there is none, or if that has ended and `again` is set.

        Raises:
            CampaignError, FamilyError: as `create`.
        """
        digest = digest_of(request)
        key = f"request:{digest}"
        # Keys that a service of an older version took from its callers may begin like ours.
        ran = CampaignRow.idempotency_key.startswith(key, autoescape=True), CampaignRow.request_digest == digest
        with self._store.transaction() as session:
            last = session.scalar(select(CampaignRow).where(*ran).order_by(CampaignRow.id.desc()).limit(1))
            if last is not None:
                if not again or last.finished_at is None:
                    return campaign_of(last)
                # Two that run it again at once share the campaign.
                key = f"{key} after {last.id}"
        return self.create(request, key)[0]

    def get(self, campaign_id: int) -> Campaign:
        """One campaign.

        Raises:
            UnknownCampaign: no campaign has this id.
        """
        with self._store.transaction() as session:
            return campaign_of(row_of(session, campaign_id))

    def page(
        self, after: int = 0, limit: int = 100, status: CampaignStatus | None = None, newest: bool = False
    ) -> list[Campaign]:
        """Campaigns with an id above `after`, in order; with `newest` in reverse, below `after` unless it is 0."""
        query = select(CampaignRow).where(CampaignRow.id > after).order_by(CampaignRow.id).limit(limit)
        if newest:
            query = select(CampaignRow).order_by(CampaignRow.id.desc()).limit(limit)
            query = query.where(CampaignRow.id < after) if after else query
        if status is not None:
            query = query.where(CampaignRow.status == status.value)
        with self._store.transaction() as session:
            return [campaign_of(row) for row in session.scalars(query)]

    def pause(self, campaign_id: int) -> Campaign:
        """Starts no further round; running ones end normally. Pausing twice has no further effect.

        Raises:
            CampaignEnded: it has finished or was cancelled.
        """
        return self._change(campaign_id, CampaignStatus.PAUSED)

    def resume(self, campaign_id: int) -> Campaign:
        """Continues a paused campaign.

        Raises:
            CampaignEnded: it has finished or was cancelled.
        """
        return self._change(campaign_id, CampaignStatus.RUNNING)

    def cancel(self, campaign_id: int) -> Campaign:
        """Ends a campaign: no further round starts, running ones stop at the next heartbeat. Measurements stay.

        Raises:
            CampaignEnded: it had already finished.
        """
        return self._change(campaign_id, CampaignStatus.CANCELLED)

    def _change(self, campaign_id: int, status: CampaignStatus) -> Campaign:
        with self._store.transaction(writes=True, slow=True) as session:
            row = row_of(session, campaign_id, lock=True)
            if row.status != status.value:
                if row.status in (CampaignStatus.CANCELLED, CampaignStatus.FINISHED):
                    done = "resumed" if status is CampaignStatus.RUNNING else status.value
                    raise CampaignEnded(f"campaign {campaign_id} is {row.status}: it cannot be {done} now")
                row.status = status.value
                if status is CampaignStatus.CANCELLED:
                    row.stopped_because, row.finished_at = "cancelled", now(session)
                session.flush()
                self._queue.align(session)
            return campaign_of(row)


def of_token(token_id: int | None) -> str:
    """The owner of keys that come over HTTP; without tokens, all callers are one."""
    return f"token {token_id}" if token_id is not None else "local"


def owned(key: str, owner: str) -> str:
    """A key as it is stored: its owner's, in a form that no other owner's key has, and short enough for its column."""
    return f"{owner}:{hashlib.sha256(key.encode()).hexdigest()}" if owner else key


def _created(session: Session, key: str, owner: str, digest: str) -> CampaignRow | None:
    """The campaign that a key of this owner created; without any, one that an older version, which stored no owners,
    created with the key from the same request.
    """
    ours = session.scalar(select(CampaignRow).filter_by(idempotency_key=owned(key, owner)))
    return ours or session.scalar(select(CampaignRow).filter_by(idempotency_key=key, request_digest=digest))


def campaign_of(row: CampaignRow) -> Campaign:
    """A row as a plain value."""
    return Campaign(
        row.id, row.name, CampaignStatus(row.status), row.stopped_because, row.priority,
        from_document(CampaignBudget, row.budget), utc(row.created_at),
        utc(row.finished_at) if row.finished_at else None,
    )  # fmt: skip


def queue_for(session: Session, device: str, kind: str) -> str:
    """The queue of a device model that is in the table of GPU models, or that a worker has registered.

    Raises:
        CampaignError: the device is unknown, or no kernel family is built for it.
    """
    if kind not in ("cuda", "recorded"):
        raise CampaignError(f"device kind {kind!r} is unknown: use cuda or recorded")
    try:
        card = profile_named(device)
    except ProfileError as error:
        seen = select(WorkerRow.queue).join(DeviceRow).where(DeviceRow.name == device, DeviceRow.kind == kind)
        known = session.scalar(seen.order_by(WorkerRow.id.desc()).limit(1))
        if known is None:
            raise CampaignError(f"{error}; no worker has registered it either") from error
        return known
    try:
        families_for(card.arch.name)
    except FamilyError as error:
        raise CampaignError(f"{card.name} is {card.arch.name}: {error}") from error
    return queue_name(card.name, card.arch.name, kind)


def _add_problems(
    session: Session, campaign_id: int, request: CampaignRequest, queues: Sequence[tuple[str, str, str]]
) -> None:
    problems = ids_by_key(session, ProblemRow, [problem_columns(problem) for problem in request.problems])
    blank: dict[str, Any] = {
        "campaign_id": campaign_id, "status": "waiting", "started": False, "closing": False, "attempts": 0,
        "suspects": [], "reason": "", "failing_config": "", "rounds": 0, "tried": 0, "failed": {}, "gpu_seconds": 0.0,
    }  # fmt: skip
    for queue, name, kind in queues:
        common = blank | {"queue": queue, "device_id": device_id(session, name, kind)}
        rows = [
            common | {"problem_id": problems[problem.key], "count": count}
            for problem, count in by_gain(session, request, name, kind)
        ]
        session.execute(insert(CampaignProblemRow), rows)


def digest_of(request: CampaignRequest) -> str:
    """Equal for equal requests."""
    document = {
        "name": request.name, "problems": [problem.key for problem in request.problems], "devices": request.devices,
        "budget": asdict(request.budget), "priority": request.priority,
    }  # fmt: skip
    if request.counts:
        document["counts"] = request.counts
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def row_of(session: Session, campaign_id: int, lock: bool = False) -> CampaignRow:
    """The row of a campaign.

    Raises:
        UnknownCampaign: no campaign has this id.
    """
    query = select(CampaignRow).where(CampaignRow.id == campaign_id)
    row = session.scalars(query.with_for_update() if lock else query).one_or_none()
    if row is None:
        raise UnknownCampaign(f"there is no campaign {campaign_id}: `gemmtune campaign list` lists them")
    return row
