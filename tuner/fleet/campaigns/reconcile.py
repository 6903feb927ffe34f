"""Reconciler: rebuilds the queue from the rounds, and the problems' statuses from their rounds.

The queue is derived. Whatever happened to it (jobs deleted by hand, restored from an older backup, an engine
replaced), each queued round gets its job again, and jobs that stand for nothing are ended.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final, cast

from sqlalchemy import CursorResult, Update, select, update
from sqlalchemy.orm import Session

from tuner.evidence.campaign_models import CampaignProblemRow, RoundRow
from tuner.evidence.store import Store
from tuner.fleet.campaigns.backlog import OPEN
from tuner.fleet.queue.port import Queue

#: Of a problem: whether one of its rounds is open.
_HAS_OPEN: Final = (
    select(RoundRow.id)
    .where(RoundRow.campaign_problem_id == CampaignProblemRow.id, RoundRow.status.in_(OPEN))
    .exists()
)


@dataclass(frozen=True, slots=True)
class Mismatch:
    """What `reconcile` would repair.

    Attributes:
        kind: in words.
        number: of the round, the job or the problem.
    """

    kind: str
    number: int

    def __str__(self) -> str:
        return f"{self.kind} {self.number}"


def mismatches(store: Store, queue: Queue) -> set[Mismatch]:
    """Where queue, rounds and problems do not agree at this moment; nothing is changed.

    What is in the middle of its own transactions may show up once: look twice.
    """
    item = CampaignProblemRow
    with store.transaction() as session:
        jobless, stray = _unpaired(session, queue)
        roundless = session.scalars(select(item.id).where(item.status == "open", ~_HAS_OPEN)).all()
        unopened = session.scalars(select(item.id).where(item.status == "waiting", _HAS_OPEN)).all()
    return {
        *(Mismatch("without a job: queued round", place) for place in jobless),
        *(Mismatch("for no round: job", job) for job in stray),
        *(Mismatch("open without a round: problem", place) for place in roundless),
        *(Mismatch("waiting with an open round: problem", place) for place in unopened),
    }  # fmt: skip


def reconcile(store: Store, queue: Queue) -> Counter[str]:
    """Compares queue, rounds and problems once; what it repaired, by kind."""
    repaired: Counter[str] = Counter()
    with store.transaction() as session:
        jobless, stray = _unpaired(session, queue)
    for round_id in jobless:
        repaired["rounds queued again"] += _queue_again(store, queue, round_id)
    for job in stray:
        repaired["jobs ended"] += _end_stray(store, queue, job)
    repaired["problems opened or put back"] += _match_problems(store)
    return +repaired


def _unpaired(session: Session, queue: Queue) -> tuple[list[int], list[int]]:
    """Queued rounds for which no job waits, and jobs that no open round names."""
    jobs = queue.jobs(session)
    # Read after the jobs: a round that is put meanwhile is seen without its job, and has to be looked at again.
    rows = session.execute(select(RoundRow.id, RoundRow.job_id, RoundRow.status).where(RoundRow.status.in_(OPEN))).all()
    waiting = {job.id for job in jobs if not job.taken}
    jobless = [place for place, job, status in rows if status == "queued" and job not in waiting]
    return jobless, sorted({job.id for job in jobs} - {job for _, job, _ in rows})


def changed_rows(session: Session, statement: Update) -> int:
    """Executes an update; how many rows it changed."""
    return cast("CursorResult[object]", session.execute(statement)).rowcount


def _queue_again(store: Store, queue: Queue, round_id: int) -> int:
    """Gives a queued round a new job, unless it has one after all."""
    with store.transaction(writes=True) as session:
        row = session.scalars(
            select(RoundRow).where(RoundRow.id == round_id, RoundRow.status == "queued").with_for_update()
        ).one_or_none()
        if row is None or any(job.id == row.job_id and not job.taken for job in queue.jobs(session)):
            return 0
        if row.job_id is not None:
            queue.end(session, row.job_id)
        (row.job_id,) = queue.put(session, row.queue, [(row.id, row.priority)])
        return 1


def _end_stray(store: Store, queue: Queue, job: int) -> int:
    """Ends a job that no open round names, unless one does by now."""
    with store.transaction(writes=True) as session:
        named = select(RoundRow.id).where(RoundRow.job_id == job, RoundRow.status.in_(OPEN))
        if session.scalar(named.with_for_update()) is not None:
            return 0
        if all(found.id != job for found in queue.jobs(session)):
            return 0
        queue.end(session, job)
        return 1


def _match_problems(store: Store) -> int:
    """A problem is open exactly while it has an open round."""
    item = CampaignProblemRow
    with store.transaction(writes=True) as session:
        back = changed_rows(session, update(item).where(item.status == "open", ~_HAS_OPEN).values(status="waiting"))
        opened = changed_rows(session, update(item).where(item.status == "waiting", _HAS_OPEN).values(status="open"))
    return back + opened
