"""Outcomes: the effect of a round's success or failure on its problem.

A failed round (its worker is gone, or could not continue) leaves suspects: candidates that it had announced and not
measured. The next round measures only some of them, about the square root of their number, and the one after that a
single candidate: 16, 4, 1. So the third consecutive failure has found the candidate that causes it, or has shown that
none of them does.

A study that ends without anything correct has failed as well: a GPU that computes everything wrong looks like a problem
without a correct candidate. Whoever continues the problem, in this campaign or the next, measures it anew.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Final

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from space.problem import Problem
from tuner.errors import NothingCorrect
from tuner.evidence import bests, measurements, studies
from tuner.evidence.campaign_models import CampaignProblemRow, RoundRow
from tuner.evidence.models import ConfigRow, MeasurementRow, StudyRow
from tuner.evidence.physics import quarantined
from tuner.evidence.picks import bests_of
from tuner.evidence.records import Best, StoredMeasurement, StudyStatus
from tuner.evidence.refutations import NONE_WRONG, Refuted, unrefuted
from tuner.fleet.campaigns.records import ProblemStatus
from tuner.studying.records import FINALISTS

#: Why a campaign's problems are skipped, or are screened no further.
SPENT: Final = "the campaign's GPU time is spent"
_OUTCOMES: Final = (
    select(ConfigRow.key, MeasurementRow.outcome)
    .join(MeasurementRow, MeasurementRow.config_id == ConfigRow.id)
    .where(MeasurementRow.study_id == bindparam("study"), MeasurementRow.stage == "screen")
)


def suspects_next(attempts: int, suspects: Sequence[str]) -> tuple[str, ...]:
    """The candidates to which the next round is restricted; empty without suspects.

    Args:
        attempts: consecutive rounds that failed.
        suspects: announced and not measured by the first of them, minus those cleared since.
    """
    if not suspects or not attempts:
        return ()
    return tuple(suspects[: math.isqrt(len(suspects) - 1) + 1 if attempts == 1 else 1])


def finalists_next(attempts: int) -> int:
    """The number of finalists: half as many after each failure, so the last attempt has only one."""
    return max(FINALISTS >> attempts, 1)


def record_failure(
    round_: RoundRow, item: CampaignProblemRow, reason: str, measured: Collection[str], most_attempts: int, at: datetime
) -> None:
    """Makes a problem wait again with its suspects, or parks it after too many attempts."""
    item.attempts += 1
    finals = round_.announced_stage == "final"
    # That the round has screened a finalist says nothing of the finals.
    announced = [key for key in round_.announced if finals or key not in measured]
    if announced and not finals:
        item.suspects = announced
    if item.attempts < most_attempts:
        item.status = ProblemStatus.WAITING.value
        return
    found = announced[0] if len(announced) == 1 else ""
    where = f"in the finals of {found}" if finals and found else f"with {found}" if found else "before any candidate"
    if announced and not found:
        where = f"with one of {len(announced)} candidates"
    park(item, f"{item.attempts} rounds in a row failed, the last {where}: {reason}", found, at)


def record_hopeless(item: CampaignProblemRow, reason: str, most_attempts: int, at: datetime) -> None:
    """Makes a problem wait for another worker, which may find what this one could not, or parks it after too many
    attempts.
    """
    item.attempts += 1
    item.status = ProblemStatus.WAITING.value
    # Another attempt would take time that is spent.
    if item.attempts >= most_attempts or item.closing:
        park(item, reason, "", at)


def clear_suspects(item: CampaignProblemRow, measured: Collection[str]) -> None:
    """After a round that succeeded: clears what it measured."""
    item.suspects = [key for key in item.suspects if key not in measured]


def forgive(item: CampaignProblemRow) -> None:
    """After a round that succeeded: attempts start again at zero, unless suspects are left, or nothing is correct yet.

    Otherwise a problem without a correct candidate, whose study takes several rounds, would never be parked.
    """
    if not item.suspects and _any_correct(item):
        item.attempts = 0


def park(item: CampaignProblemRow, reason: str, failing_config: str, at: datetime) -> None:
    """Ends a problem without a best."""
    item.status, item.reason, item.failing_config, item.ended_at = "parked", reason, failing_config, at


def verdict(
    problem: Problem, finals: Sequence[StoredMeasurement], wrong: Refuted = NONE_WRONG
) -> list[Best] | NothingCorrect | None:
    """The winners of finals that are not stored yet, the served one first; None without finals.

    Slow: it bootstraps, so not in a transaction.
    """
    if not finals:
        return None
    try:
        return bests_of(problem, unrefuted(finals, wrong), 0, {})
    except NothingCorrect as nothing:
        return nothing


def conclude(
    session: Session,
    round_: RoundRow,
    problem: Problem,
    because: str,
    decided: list[Best] | NothingCorrect | None,
    stored: Sequence[StoredMeasurement],
    most_attempts: int,
    at: datetime,
) -> None:
    """Ends the problem of a round whose study is complete: done with its best, or parked with the reason.

    A study with correct candidates but without finals is not complete: the round has failed. So has one that found
    nothing correct: until there were too many, the problem waits again.

    Args:
        decided: verdict of the study's finals; None without finals.
        stored: this round's measurements, as stored.
    """
    item, study_id = round_.campaign_problem, round_.study_id
    assert study_id is not None
    studies.set_status(session, study_id, StudyStatus.FINISHED, because)
    if decided is None:
        decided = verdict(problem, measurements.final_series(session, study_id))
    if isinstance(decided, NothingCorrect):
        _measure_anew(session, round_, f"nothing correct: {decided}", most_attempts, at)
    elif decided is not None:
        _finish(session, item, because, decided, stored, at)
    elif _any_correct(item):
        measured = outcomes(session, study_id).keys()
        record_failure(round_, item, "the worker ended the study without its finals", measured, most_attempts, at)
    else:
        kinds = ", ".join(f"{count} {kind}" for kind, count in item.failed.items()) or "none tried"
        _measure_anew(session, round_, f"nothing correct: {kinds}", most_attempts, at)


def _finish(
    session: Session, item: CampaignProblemRow, because: str, decided: Sequence[Best],
    stored: Sequence[StoredMeasurement], at: datetime,
) -> None:  # fmt: skip
    """Stores a problem's winners, and ends it with the served one; parks it where its card is in quarantine."""
    as_stored = {id(entry.measurement): entry for entry in stored}
    won = [
        replace(best, winner=as_stored.get(id(best.winner.measurement), best.winner), tried=item.tried,
                failed=dict(item.failed))
        for best in decided
    ]  # fmt: skip
    remarks = bests.put(session, won)
    if why := quarantined(won[0].device):
        park(item, f"quarantined: {why}", "", at)
        return
    best, because = won[0], "; ".join([because, *remarks])
    item.status, item.reason, item.ended_at, item.measurement_id = "done", because, at, best.winner.id
    item.attempts = 0
    item.versus_first = asdict(best.versus_first) if best.versus_first else None
    item.versus_best = asdict(best.versus_best) if best.versus_best else None


def _measure_anew(session: Session, round_: RoundRow, reason: str, most_attempts: int, at: datetime) -> None:
    """After a study without anything correct: begins its next generation, because a study that has tried everything
    would only say the same again.
    """
    study = session.get(StudyRow, round_.study_id)
    assert study is not None
    studies.renew(session, study)
    record_hopeless(round_.campaign_problem, reason, most_attempts, at)


def _any_correct(item: CampaignProblemRow) -> bool:
    return item.tried > sum(item.failed.values())


def outcomes(session: Session, study_id: int | None) -> dict[str, str]:
    """Outcome of every config that a study has screened, by its key."""
    found = session.execute(_OUTCOMES, {"study": study_id}) if study_id is not None else ()
    return {key: outcome for key, outcome in found}


def count_tried(item: CampaignProblemRow, outcomes: Iterable[str]) -> None:
    """Counts what the problem's study has screened, by outcome."""
    counts = Counter(outcomes)
    item.tried = counts.total()
    item.failed = {outcome: count for outcome, count in sorted(counts.items()) if outcome != "correct"}
