"""Reports: checking a round's report, storing it, and applying it to the problem."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from tuner.errors import NothingCorrect, ResultRefused
from tuner.evidence import measurements
from tuner.evidence.campaign_models import CampaignProblemRow, RoundRow, WorkerRow
from tuner.evidence.codec import utc
from tuner.evidence.measurements import Place, Prepared
from tuner.evidence.records import Author, Best, StoredMeasurement
from tuner.evidence.refutations import Refuted
from tuner.fleet.campaigns.checks import MOST_TEXT, check_finals, check_measurements, check_provenance
from tuner.fleet.campaigns.leases import LeasedRound
from tuner.fleet.campaigns.outcomes import (
    clear_suspects,
    count_tried,
    forgive,
    park,
    record_failure,
    record_hopeless,
    verdict,
)
from tuner.fleet.campaigns.records import RoundReport
from tuner.studying.records import source_of

#: Characters kept of a worker's reason.
MOST_REASON = 1_000
#: What a round takes at most; nearly all take less than a minute.
LONGEST_SECONDS: Final = 600.0


def check_report(
    holder: LeasedRound, report: RoundReport, wrong: Refuted
) -> list[Best] | NothingCorrect | None:
    """Checks a whole report and decides its finals; outside any transaction, because both take a while.

    Args:
        wrong: builds that were found wrong before, on the problem and the device of the round.

    Raises:
        ResultRefused: it breaks a rule.
    """
    if max(len(report.ended), len(report.failure)) > MOST_TEXT:
        raise ResultRefused(f"a reason is longer than {MOST_TEXT} characters")
    if not 0 <= report.busy_seconds < 86_400:
        raise ResultRefused(f"busy_seconds = {report.busy_seconds} is not the duration of a round: give 0 to 86,400")
    if not report.measurements:
        return None
    provenance = report.provenance
    if provenance is None or holder.source is None or source_of(provenance) != holder.source:
        raise ResultRefused("the measurements have another provenance than the round began with")
    check_provenance(provenance, holder.facts)
    # First: whatever follows takes longer the more there is.
    check_finals(report.measurements, holder.facts, holder.turns)
    check_measurements(report.measurements, holder.problem, holder.facts)
    at = datetime.now().astimezone()
    finals = [
        StoredMeasurement(0, 0, holder.facts.name, holder.facts.kind, at, provenance, measurement)
        for measurement in report.measurements
        if measurement.stage == "final"
    ]
    return verdict(holder.problem, finals, wrong)


def fresh(
    session: Session, row: RoundRow, holder: LeasedRound, report: RoundReport, screened: Mapping[str, str]
) -> Prepared | None:
    """A report's measurements, ready to be stored, except configs that the study has screened meanwhile.

    `gemmtune tune` on the same database may work on the same study.

    Returns:
        None without any.
    """
    if row.study_id is None or report.provenance is None:
        return None
    new = [entry for entry in report.measurements if entry.stage == "screen" and entry.config.key not in screened]
    # Finals last: they cover everything screened before them.
    new += [entry for entry in report.measurements if entry.stage == "final"]
    facts, device_id = holder.facts, row.campaign_problem.device_id
    author = Author(row.worker_id, row.id, row.worker.token_id if row.worker else None)
    place = Place(row.study_id, row.problem_id, device_id, facts.name, facts.kind, author)
    return measurements.prepare(session, place, new, report.provenance) if new else None


def settle(
    session: Session,
    row: RoundRow,
    report: RoundReport,
    screened: Mapping[str, str],
    new: Prepared | None,
    most_attempts: int,
    at: datetime,
) -> bool:
    """Ends a locked round, and its problem if that cannot continue.

    Args:
        screened: outcome of every config that the study has screened, by its key.
        new: the measurements about to be stored.

    Returns:
        Whether the study is complete; the problem then stays open until `conclude`.
    """
    item, taken = row.campaign_problem, new.measurements if new else ()
    screenings = [entry for entry in taken if entry.stage == "screen"]
    account(session, row, item, report.busy_seconds, len(screenings), at)
    row.status, row.reason = ("failed" if report.failure else "done"), report.failure[:MOST_REASON]
    item.started = True
    if row.study_id is not None:
        count_tried(item, [*screened.values(), *(entry.outcome.value for entry in screenings)])
    measured = {entry.config.key for entry in report.measurements}
    failure = report.failure[:MOST_REASON]
    if failure and report.hopeless and row.study_id is None:
        # The worker's word is all that there is: it would only say the same again, another one may know better.
        record_hopeless(item, failure, most_attempts if _others_live(session, row) else 1, at)
    elif failure and report.hopeless:
        park(item, failure, "", at)
    elif failure:
        record_failure(row, item, failure, measured, most_attempts, at)
    elif not (report.measurements or report.ended or report.handed_back or screened.keys() & set(item.suspects)):
        record_failure(row, item, "the round measured nothing", measured, most_attempts, at)
    else:
        clear_suspects(item, measured | screened.keys())
        if report.ended and row.study_id is not None:
            return True
        forgive(item)
        item.status = "waiting"
    return False


def _others_live(session: Session, row: RoundRow) -> bool:
    """Whether another worker than the round's may take the next one."""
    others = WorkerRow.queue == row.queue, WorkerRow.status == "live", WorkerRow.id != row.worker_id
    return session.scalar(select(WorkerRow.id).where(*others).limit(1)) is not None


def account(
    session: Session, row: RoundRow, item: CampaignProblemRow, busy_seconds: float, measured: int, at: datetime,
    last: datetime | None = None,
) -> None:  # fmt: skip
    """Charges a round's time: it occupied the device from its claim to its end, whatever the worker reports.

    What takes longer than a round does was no round: the clock was set, or the host or all services slept. Then the
    worker's word counts, if it says more than a round takes.

    Args:
        last: when the round ended at the latest, where nobody listened until `at`.
    """
    # The wall clock may have been set back.
    until = min(at, last) if last else at
    elapsed = max((until - utc(row.claimed_at)).total_seconds(), 0.0) if row.claimed_at else 0.0
    charged = min(elapsed, max(busy_seconds, LONGEST_SECONDS))
    row.ended_at, row.measured, row.busy_seconds = at, measured, min(busy_seconds, elapsed)
    item.rounds += 1
    item.gpu_seconds += charged
    worker = session.get(WorkerRow, row.worker_id)
    if worker is not None:
        worker.rounds += 1
        worker.busy_seconds += row.busy_seconds
