"""Revocations: a worker's or a token's reports are no longer trusted, and the best of the rest is served.

Measurements stay in the store, marked. Their studies are not continued: the next one begins anew. A problem without
any remaining finals loses its best.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from sqlalchemy import ColumnElement, func, insert, literal, or_, select
from sqlalchemy.orm import Session

from space.devices import find_profile
from space.problem import Problem
from tuner.errors import StoreError, UnknownWorker
from tuner.evidence import bests, changes, codec, studies
from tuner.evidence.campaign_models import WorkerRow
from tuner.evidence.measurements import NOT_REVOKED
from tuner.evidence.models import (
    BestRow,
    DeviceRow,
    MeasurementRow,
    ProblemRow,
    RevocationRow,
    RevokedRow,
    StudyRow,
    TokenRow,
)
from tuner.evidence.picks import precedence
from tuner.evidence.postgresql import allow_pauses
from tuner.evidence.records import Best, Provenance, Revocation
from tuner.evidence.remaining import FINALS, remaining_bests
from tuner.evidence.store import Store

#: A service's call that revokes recomputes bests for this long; its sweep does the rest.
_SECONDS = 10.0

_log = logging.getLogger("gemmtune.bests")


def revoke(
    store: Store, *, worker: str = "", token: str = "", since: datetime | None = None, reason: str = "",
    made_by: str = "local", whole: bool = False,
) -> Revocation:  # fmt: skip
    """Takes what a worker or a token reported out of the running.

    It covers what is stored now: revoke the token too if its holder is not to report again.

    Args:
        worker, token: a name; one of them. Of a worker whose row was deleted, the number that its measurements name,
            also where another worker has it as its name: then both are meant.
        since: only what was stored then or later.
        whole: replace every best that it takes, however long that takes: no service may sweep this store.

    Raises:
        UnknownWorker: no worker or token has this name.
    """
    moment = since.astimezone(UTC) if since else None
    with store.transaction(writes=True, slow=True) as session:
        # First: waits for reports under way, so that what they store is covered.
        changes.count(session, "measurement")
        # And for bests that are being stored: those are settled below, and later ones are judged after this.
        changes.lock(session, "best")
        theirs = [_authored(session, worker, token), NOT_REVOKED]
        if moment:
            theirs.append(MeasurementRow.taken_at >= moment)
        row = RevocationRow(worker=worker, token=token, since=moment, reason=reason, made_by=made_by,
                            at=datetime.now(UTC))  # fmt: skip
        session.add(row)
        session.flush()
        marked = select(MeasurementRow.id, literal(row.id)).where(*theirs)
        session.execute(insert(RevokedRow).from_select(["measurement_id", "revocation_id"], marked))
        ours = select(func.count(RevokedRow.measurement_id)).where(RevokedRow.revocation_id == row.id)
        count = session.scalars(ours).one()
        _end_studies(session, row.id)
    replaced = settle(store, math.inf if whole else _SECONDS)
    return Revocation(row.id, worker, token, moment, reason, made_by, row.at, count, replaced)


def newest(store: Store) -> int:
    """Number of the last revocation; 0 before the first."""
    with store.transaction() as session:
        return session.scalar(select(func.max(RevocationRow.id))) or 0


def settle(store: Store, seconds: float = math.inf) -> int:
    """Replaces bests whose measurement was revoked, for at most `seconds`; returns the number of problems.

    Problems of a kind that this version does not know are left to one that does: here they answer nothing.
    """
    until = time.monotonic() + seconds
    query = select(BestRow.problem_id, BestRow.device_id, RevocationRow.worker, RevocationRow.token)
    query = query.join(RevokedRow, RevokedRow.measurement_id == BestRow.measurement_id)
    with store.transaction() as session:
        rows = session.execute(query.join(RevocationRow, RevocationRow.id == RevokedRow.revocation_id)).all()
    found = {row[:2]: f"what {f'worker {row[2]}' if row[2] else f'token {row[3]}'} told was revoked" for row in rows}
    count = 0
    for (problem_id, device_id), reason in found.items():
        if time.monotonic() > until:
            break
        count += _rebuild(store, problem_id, device_id, reason)
    return count


def release(store: Store) -> int:
    """Serves measurements of cards that an earlier version did not know; returns the number of bests."""
    finals = select(MeasurementRow.problem_id, MeasurementRow.device_id).where(*FINALS).distinct()
    with store.transaction() as session:
        served = select(BestRow.id).where(BestRow.device_id == DeviceRow.id).exists()
        without = session.execute(select(DeviceRow.id, DeviceRow.name).where(~served)).all()
        known = [number for number, name in without if find_profile(name)]
        if not known:
            return 0
        pairs = session.execute(finals.where(MeasurementRow.device_id.in_(known))).all()
    return sum(_rebuild(store, problem_id, device_id, "the card is known now") for problem_id, device_id in pairs)


def _authored(session: Session, worker: str, token: str) -> ColumnElement[bool]:
    if bool(worker) == bool(token):
        raise UnknownWorker("name either a worker or a token")
    if token:
        number = session.scalar(select(TokenRow.id).where(TokenRow.name == token))
        if number is None:
            raise UnknownWorker(f"there is no token {token!r}: `gemmtune token list` lists them")
        return MeasurementRow.token_id == number
    named = select(WorkerRow.id).where(WorkerRow.name == worker)
    found = session.scalar(named.limit(1)) is not None
    number = _numbered(session, worker, deleted=found)
    if not (found or number):
        raise UnknownWorker(
            f"there is no worker {worker!r}: `gemmtune worker list --gone` lists them; of one that was deleted, give "
            f"the number that its measurements name"
        )
    # A query, not its numbers: PostgreSQL takes 65,535 parameters, and each start of a worker is a row.
    return or_(MeasurementRow.worker_id.in_(named), MeasurementRow.worker_id == number)


def _numbered(session: Session, worker: str, deleted: bool) -> int:
    """The number of a worker that is given in place of its name: old rows of workers are deleted, measurements stay.

    Args:
        deleted: only if no row has this number, because a worker has it as its name.

    Returns:
        0, which no measurement names, if it is none.
    """
    number = int(worker) if worker.isascii() and worker.isdecimal() and len(worker) < 10 else 0
    if deleted and session.get(WorkerRow, number) is not None:
        return 0
    named = select(MeasurementRow.id).where(MeasurementRow.worker_id == number).limit(1)
    return number if session.scalar(named) is not None else 0


def _end_studies(session: Session, revocation_id: int) -> None:
    """Begins the next generation of every study that a revocation touched."""
    touched = select(MeasurementRow.study_id).join(RevokedRow, RevokedRow.measurement_id == MeasurementRow.id)
    touched = touched.where(RevokedRow.revocation_id == revocation_id).distinct()
    for study in session.scalars(select(StudyRow).where(StudyRow.id.in_(touched))).all():
        studies.renew(session, study)


def _rebuild(store: Store, problem_id: int, device_id: int, reason: str) -> bool:
    """Replaces a problem's bests that are missing or revoked by those of the remaining finals.

    Returns:
        False where this version does not know the problem's kind: it is left to one that does.
    """
    of = {"problem_id": problem_id, "device_id": device_id}
    with store.transaction() as session:
        allow_pauses(session.connection())
        try:
            problem = codec.problem_of(session.get_one(ProblemRow, problem_id).key)
        except StoreError as error:
            _log.error("bests are left as they are: %s", error)
            return False
        device, last = session.get_one(DeviceRow, device_id).name, _last_final(session, of)
        standing = remaining_bests(session, of, problem, device)
    with store.transaction(writes=True) as session:
        changes.lock(session, "best")
        revoked_since = any(session.get(RevokedRow, best.winner.id) for best in standing.values())
        if revoked_since or _last_final(session, of) != last:
            # By another revocation, which found nothing of them to replace; or what came lost to a best that goes now.
            standing = remaining_bests(session, of, problem, device)
        rows = bests.rows_of(session, of)
        revoked = {policy for policy, row in rows.items() if session.get(RevokedRow, row.measurement_id)}
        for policy in sorted(revoked - standing.keys()):
            bests.remove(session, rows.pop(policy), f"{reason}, and nothing else was measured")
        taken = [policy for policy in standing if policy not in rows or policy in revoked]
        for policy in taken:
            row = rows.setdefault(policy, BestRow(**of, policy=policy, served=False))
            bests.replace(session, row, standing[policy], reason)
        if rows and (taken or revoked):
            bests.serve(session, problem, device, _deciding(problem, device, rows, standing, taken), rows)
    return True


def _deciding(
    problem: Problem, device: str, rows: Mapping[str, BestRow], standing: Mapping[str, Best], taken: Sequence[str]
) -> Provenance | None:
    """Whose program decides what is served: that of the served best where it stays, else that of the first policy."""
    kept = {policy: row for policy, row in rows.items() if policy not in taken}
    stays = next((row for row in kept.values() if row.served), None)
    if stays is None and taken:
        order = [policy.value for policy in precedence(problem, device)]
        return standing[min(taken, key=order.index)].winner.provenance
    # What is left may be of another version, which this one can't read.
    left = stays or next(iter(kept.values()))
    return codec.provenance_of(left.measurement.provenance.content)


def _last_final(session: Session, of: dict[str, int]) -> int | None:
    """The number of the last of the finals in the running."""
    return session.scalar(select(func.max(MeasurementRow.id)).filter_by(**of).where(*FINALS))
