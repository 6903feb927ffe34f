"""Rounds from claim to report, fenced by their lease at every step.

A claim creates the lease, which is never reused. A worker that was silent for too long has lost its round: every
later call about it is refused, and nothing is stored. A report that is sent again, because its answer was lost, gets
the same answer again; another report of a round that has ended is refused. A round belongs to its worker's token: for
every other token it does not exist.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from typing import Final

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from space.config import Config
from space.family import families_for, is_own
from tuner.errors import LeaseLost, ResultRefused, StoreError, UnstorableValue, WorkerGone
from tuner.evidence import bests, codec, measurements, studies
from tuner.evidence.campaign_models import RoundRow
from tuner.evidence.columns import check_text
from tuner.evidence.legality import all_forbidden
from tuner.evidence.models import ConfigRow, MeasurementRow
from tuner.evidence.records import StudyKey, StudyStatus
from tuner.evidence.refutations import NONE_WRONG, refuted_for, refuted_in
from tuner.evidence.store import Store
from tuner.fleet.campaigns import claims
from tuner.fleet.campaigns.checks import check_legal, check_provenance, config_from_key
from tuner.fleet.campaigns.leases import ANNOUNCED, BEGUN, LeasedRound, held, keep, locked, repeated
from tuner.fleet.campaigns.outcomes import SPENT, conclude, outcomes, verdict
from tuner.fleet.campaigns.records import TIMING, RoundReport, RoundTask, StudyHistory, Timing
from tuner.fleet.campaigns.reports import MOST_REASON, check_report, fresh, settle
from tuner.fleet.campaigns.workers import touch
from tuner.fleet.queue.choice import queue_of
from tuner.studying.records import Trial, names_of, source_of, standing
from workers.measurement import Outcome, Provenance, Stage, to_json

_log = logging.getLogger("gemmtune.rounds")
#: After this many candidates, the winners of similar problems have been tried.
_LATE: Final = 64
_MEASURED: Final = (
    select(
        ConfigRow.key, MeasurementRow.outcome, MeasurementRow.median_us, MeasurementRow.samples_us,
        MeasurementRow.stage, MeasurementRow.series,
    )
    .join(MeasurementRow, MeasurementRow.config_id == ConfigRow.id)
    .where(MeasurementRow.study_id == bindparam("study"))
    .order_by(MeasurementRow.id)
)  # fmt: skip


class Rounds:
    """The rounds of one store.

    Args:
        first: as in `queue_of`.
    """

    def __init__(self, store: Store, timing: Timing = TIMING, first: int | None = None) -> None:
        self._store, self._timing, self._queue = store, timing, queue_of(store, first)

    def claim(self, worker_id: int, token_id: int | None = None) -> RoundTask | None:
        """The next round for a worker; None when no round waits, or the worker drains.

        A worker that already holds a round gets it again: the answer to its last claim was lost.

        Raises:
            WorkerGone: it counts as gone.
            UnknownWorker: no worker of this token has this id.
        """
        with self._store.transaction(writes=True) as session:
            worker, seconds = touch(session, self._queue, worker_id, token_id), self._timing.round_seconds
            task = claims.held(session, worker, seconds)
            if task or worker.status == "draining":
                return task
            task = claims.claim(session, self._queue, worker, seconds)
            if task is None and self._queue.align(session, worker.queue):
                task = claims.claim(session, self._queue, worker, seconds)
            return task

    def begin(self, round_id: int, lease: str, provenance: Provenance, token_id: int | None = None) -> StudyHistory:
        """The study that the round continues, on a device with this provenance.

        Raises:
            LeaseLost: the caller no longer holds the round.
            UnknownRound: no worker of this token ever held it.
            ResultRefused: the provenance names another device than the worker's, or another program than the one that
                the round began with; or this version can't read the problem.
        """
        with self._store.transaction(writes=True) as session:
            holder = held(session, round_id, lease, token_id)
            problem = holder.problem
            check_provenance(provenance, holder.facts)
            touch(session, self._queue, holder.worker_id, token_id)
            competing = names_of(families_for(holder.facts.arch, problem))
            name, kind = holder.facts.name, holder.facts.kind
            key = StudyKey(problem, name, kind, holder.facts.screens_under, competing, source_of(provenance))
            study = studies.begin(session, key, holder.problem_id, holder.device_id)
            # Studies are never deleted: a round has one.
            if session.scalar(select(RoundRow.study_id).where(RoundRow.id == round_id)) not in (None, study.id):
                raise ResultRefused(f"round {round_id} began with another program: end it, then claim another")
            keep(session, BEGUN, round_id, lease, study=study.id)
            tried, finals = _past(session, study.id)
            finals_done = bool(finals) and not all_forbidden(problem, finals, name)
            winners = () if len(tried) > _LATE else bests.winners_near(session, problem, name, study.id)
            return StudyHistory(study.id, tried, finals_done, winners)

    def announce(
        self, round_id: int, lease: str, stage: Stage, configs: Sequence[str], token_id: int | None = None
    ) -> None:
        """Records which candidates are about to be measured: the suspects if the worker falls silent.

        Raises:
            LeaseLost: the caller no longer holds the round.
            UnknownRound: no worker of this token ever held it.
            ResultRefused: one of them is malformed or illegal, or this version can't read the problem.
        """
        with self._store.transaction(writes=True) as session:
            holder = held(session, round_id, lease, token_id)
            found = [config_from_key(key) for key in configs]
            check_legal(holder.problem, holder.facts.profile, found, stage)
            touch(session, self._queue, holder.worker_id, token_id)
            keep(session, ANNOUNCED, round_id, lease, stage=stage, configs=[config.key for config in found])
            if stage == "screen" and holder.finished and holder.study_id is not None:
                studies.set_status(session, holder.study_id, StudyStatus.RUNNING, "")

    def finish(self, round_id: int, lease: str, report: RoundReport, token_id: int | None = None) -> None:
        """Stores what a round measured, ends it and queues the problem's next round, in one transaction.

        Does nothing if exactly this report has ended the round.

        Raises:
            LeaseLost: the caller no longer holds the round; nothing was stored.
            UnknownRound: no worker of this token ever held it.
            ResultRefused: the report breaks a rule; nothing was stored, and the caller still holds the round.
            UnstorableValue: a text of the report can't be stored; the same.
        """
        digest = hashlib.sha256(_as_json(report)).hexdigest()
        try:
            self._finish(round_id, lease, report, digest, token_id)
        except (LeaseLost, WorkerGone):
            with self._store.transaction() as session:
                if not repeated(session, round_id, lease, token_id, digest):
                    raise

    def _finish(self, round_id: int, lease: str, report: RoundReport, digest: str, token_id: int | None) -> None:
        with self._store.transaction(slow=False) as session:
            holder = held(session, round_id, lease, token_id)
            # A report without finals may end a study by those that it has.
            ends = report.ended and not (report.failure or _has_finals(report))
            finals = measurements.final_series(session, holder.study_id) if ends and holder.study_id else []
            wrong = refuted_for(session, holder.study_id) if holder.study_id else NONE_WRONG
        decided = check_report(holder, report, wrong) or (verdict(holder.problem, finals) if finals else None)
        with self._store.transaction(writes=True) as session:
            moment = touch(session, self._queue, holder.worker_id, token_id, waits=True).at
            row = locked(session, round_id, lease)
            row.report_digest = digest
            screened = outcomes(session, row.study_id)
            new = fresh(session, row, holder, report, screened)
            if new and not _has_finals(report):
                # The study's finals don't have what is new.
                decided = None
            # Rows are written once, when everything is decided.
            with session.no_autoflush:
                concluding = settle(session, row, report, screened, new, self._timing.attempts, moment)
                job, row.job_id = row.job_id, None
            session.flush()
            if not concluding:
                self._queue.release(session, job, again=row.campaign_problem.status == "waiting")
            # Last: from here to the commit, every other report waits.
            stored = measurements.insert_prepared(session, new, ids=concluding) if new else []
            if concluding:
                because = _because(row, holder, report)
                conclude(session, row, holder.problem, because, decided, stored, self._timing.attempts, moment)
                self._queue.release(session, job, again=row.campaign_problem.status == "waiting")


def _because(row: RoundRow, holder: LeasedRound, report: RoundReport) -> str:
    """Why a study has ended. A worker knows only of a budget, which a spent campaign has cut to what was tried."""
    item = row.campaign_problem
    cut = item.closing and not row.measured and item.tried < holder.candidates
    return SPENT if cut else report.ended[:MOST_REASON]


def _has_finals(report: RoundReport) -> bool:
    return any(one.stage == "final" for one in report.measurements)


def _as_json(report: RoundReport) -> bytes:
    """The report as JSON.

    Raises:
        UnstorableValue: one of its texts can't be stored.
    """
    try:
        found: bytes = to_json(report)
    except ValueError as error:
        raise UnstorableValue(f"the report holds half of a surrogate pair: leave it out ({error})") from error
    if b"\\u0000" in found:
        _check_texts(json.loads(found))
    return found


def _check_texts(found: object) -> None:
    if isinstance(found, str):
        check_text(found)
    elif isinstance(found, list | dict):
        for each in found if isinstance(found, list) else found.values():
            _check_texts(each)


def _past(session: Session, study_id: int) -> tuple[tuple[Trial, ...], list[Config]]:
    """What a study has screened, in order, as it is `standing`; and the correct configs of its last finals; none if it
    screened later."""
    rows = session.execute(_MEASURED, {"study": study_id}).all()
    last = rows[-1].series if rows and rows[-1].stage == "final" else 0
    tried, finals, wrong = list[Trial](), list[Config](), refuted_in(session, study_id)
    for key, outcome, median_us, samples_us, stage, series in rows:
        if stage != "screen" and not (series == last and outcome == "correct"):
            continue
        try:
            config = codec.config_of(key)
        except StoreError as error:
            # Of another version, whose knobs had other values: it can be no finalist here.
            _log.warning("left out of a study: %s", error)
            continue
        if stage != "screen":
            if key not in wrong:
                finals.append(config)
            continue
        tried.append(Trial.timed(config, Outcome(outcome), median_us, samples_us))
    # Others of ours may win where all that took part were wrong.
    return tuple(standing(tried, wrong)), finals if not wrong or any(map(is_own, finals)) else []
