"""Rounds over their life: claimed under a lease, begun, announced, finished. Fenced at every step.

The lease is made when a round is claimed and never given twice. A worker that was silent for too long has lost
its round, whatever it believes; all that it says of it is refused, and nothing of it is stored. A report that is
sent again, because its answer was lost, is answered again.
"""

from __future__ import annotations

import math
import secrets
from typing import Final

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from space.family import families_for
from tuner.campaigns.checks import check_legal, check_provenance, config_from_key
from tuner.campaigns.endings import finalists_next, suspects_next
from tuner.campaigns.feed import feed, feed_begun
from tuner.campaigns.leases import held, locked, reported, whole
from tuner.campaigns.records import TIMING, Announcement, CampaignBudget, Past, RoundReport, RoundTask, Timing
from tuner.campaigns.reports import check_report, conclude_study, fresh, outcomes, settle
from tuner.campaigns.workers import live_worker, touch
from tuner.errors import LeaseLost
from tuner.queue.choice import queue_of
from tuner.queue.port import Queue
from tuner.records import StudyKey
from tuner.rounds import Tried
from tuner.store import bests, codec, measurements, studies
from tuner.store.campaign_models import RoundRow, WorkerRow
from tuner.store.models import ConfigRow, MeasurementRow
from tuner.store.store import Store
from tuner.study import names_of, source_of
from workers.measurement import Outcome, Policy, Provenance

#: Jobs that stand for nothing any more that one claim clears away before it gives up until the next.
_MOST_STALE: Final = 50
#: After so many candidates what won elsewhere has been tried.
_LATE: Final = 64
#: What a claim looks for: the round that a worker holds already, or that of a job.
_RUNNING: Final = whole().where(RoundRow.worker_id == bindparam("worker"), RoundRow.status == "running")
_QUEUED: Final = whole().where(RoundRow.id == bindparam("round")).with_for_update(of=RoundRow)
_SCREENED: Final = (
    select(ConfigRow.key, MeasurementRow.outcome, MeasurementRow.median_us)
    .join(MeasurementRow, MeasurementRow.config_id == ConfigRow.id)
    .where(MeasurementRow.study_id == bindparam("study"), MeasurementRow.stage == "screen")
    .order_by(MeasurementRow.id)
)


class Rounds:
    """The rounds of one store."""

    def __init__(self, store: Store, timing: Timing = TIMING, queue: Queue | None = None) -> None:
        self._store, self._timing = store, timing
        self._queue = queue or queue_of(store)

    def claim(self, worker_id: int) -> RoundTask | None:
        """The next round for a worker; None when there is none, or when it drains.

        A worker that holds a round already gets that one again: the answer to its last claim was lost.

        Raises:
            WorkerGone: it counts as gone.
        """
        with self._store.transaction(writes=True) as session:
            worker, moment = live_worker(session, worker_id)
            worker.beat_at = moment
            if (row := session.scalars(_RUNNING, {"worker": worker_id}).one_or_none()) is not None:
                return self._task(row)
            if worker.status == "draining":
                return None
            taken = self._take(session, worker)
            if taken is None and feed(session, self._queue, worker.queue, self._timing.window):
                taken = self._take(session, worker)
            if taken is None:
                return None
            taken.status, taken.worker_id, taken.lease = "running", worker_id, secrets.token_hex(16)
            taken.claimed_at = moment
            return self._task(taken)

    def begin(self, round_id: int, lease: str, provenance: Provenance) -> Past:
        """The study that the round goes on with, on a device with this provenance.

        Raises:
            LeaseLost: the round is not the caller's any more.
            ResultRefused: the provenance is not of the worker's device.
        """
        with self._store.transaction(writes=True) as session:
            holder = held(session, round_id, lease)
            check_provenance(provenance, holder.facts)
            touch(session, holder.worker_id)
            row = locked(session, round_id, lease)
            competing = names_of(families_for(holder.facts.arch, holder.problem))
            of_device = (holder.facts.name, holder.facts.kind, holder.policy, competing, source_of(provenance))
            place = (row.problem_id, row.campaign_problem.device_id)
            study = studies.begin_at(session, StudyKey(holder.problem, *of_device), *place)
            row.study_id = study.id
            finals = measurements.final_series(session, study.id)
            tried = tuple(_tried(session, study.id))
            winners = (
                () if len(tried) > _LATE else bests.winners_near(session, holder.problem, holder.facts.name)
            )
            return Past(study.id, tried, bool(finals), winners)

    def announce(self, round_id: int, lease: str, announcement: Announcement) -> None:
        """Names the candidates that are measured next, before they are.

        Raises:
            LeaseLost: the round is not the caller's any more.
            ResultRefused: one of them is malformed or illegal.
        """
        with self._store.transaction() as session:
            holder = held(session, round_id, lease)
        configs = [config_from_key(key) for key in announcement.configs]
        check_legal(holder.problem, holder.facts.arch, configs, announcement.stage)
        with self._store.transaction(writes=True) as session:
            touch(session, holder.worker_id)
            row = locked(session, round_id, lease)
            row.announced_stage, row.announced = announcement.stage, [config.key for config in configs]

    def finish(self, round_id: int, lease: str, report: RoundReport) -> None:
        """Stores what a round measured, ends it and queues what follows, in one transaction.

        Raises:
            LeaseLost: the round is not the caller's any more; nothing was stored.
            ResultRefused: the report breaks a rule; nothing was stored, and the round is still the caller's.
        """
        with self._store.transaction() as session:
            try:
                holder = held(session, round_id, lease)
            except LeaseLost:
                if reported(session, round_id, lease):
                    return
                raise
        decided = check_report(holder, report)
        with self._store.transaction(writes=True) as session:
            _, moment = touch(session, holder.worker_id)
            row = locked(session, round_id, lease)
            screened = outcomes(session, row.study_id)
            new = fresh(session, row, holder, report, screened)
            # Written once, when all of it is decided.
            with session.no_autoflush:
                concluding = settle(session, row, report, screened, new, self._timing.attempts, moment)
                if row.job_id is not None:
                    self._queue.end(session, row.job_id)
                    row.job_id = None
            session.flush()
            feed_begun(session, self._queue, row.queue, moment)
            # Last, because from here to the commit every other round that ends has to wait.
            stored = measurements.insert_prepared(session, new, ids=concluding) if new else []
            if concluding:
                conclude_study(session, row, holder.problem, report, decided, stored, self._timing.attempts, moment)

    def _take(self, session: Session, worker: WorkerRow) -> RoundRow | None:
        """A queued round of a running campaign, locked; what is queued for nothing is cleared away."""
        for _ in range(_MOST_STALE):
            job = self._queue.take(session, worker.queue, worker.engine_id)
            if job is None:
                return None
            row = session.scalars(_QUEUED, {"round": job.round_id}).one_or_none()
            if row is None or row.status != "queued" or row.job_id != job.id:
                self._queue.end(session, job.id)
            elif row.campaign_problem.campaign.status != "running":
                self._queue.end(session, job.id)
                row.status, row.reason = "withdrawn", f"the campaign is {row.campaign_problem.campaign.status}"
                row.job_id = None
                row.campaign_problem.status = "waiting"
                session.flush()
            else:
                return row
        return None

    def _task(self, row: RoundRow) -> RoundTask:
        item, campaign = row.campaign_problem, row.campaign_problem.campaign
        budget = CampaignBudget(**campaign.budget).of_problem(item.tried if item.closing else None)
        return RoundTask(
            row.id, row.lease or "", row.problem.key, Policy(campaign.policy), budget.candidates, budget.rounds,
            budget.target, self._timing.round_seconds, suspects_next(item.attempts, item.suspects),
            finalists_next(item.attempts),
        )  # fmt: skip


def _tried(session: Session, study_id: int) -> list[Tried]:
    return [
        Tried(codec.config_of(key), Outcome(outcome), median_us if median_us and outcome == "correct" else math.inf)
        for key, outcome, median_us in session.execute(_SCREENED, {"study": study_id})
    ]
