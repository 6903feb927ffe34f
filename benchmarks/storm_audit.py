"""Audits the tables after a storm: invariants that hold whatever was killed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Final

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from benchmarks.storm_recordings import planted_us
from tuner.evidence.campaign_models import CampaignProblemRow, RoundRow, WorkerRow
from tuner.evidence.codec import utc
from tuner.evidence.models import BestRow, ConfigRow, MeasurementRow, ProblemRow
from tuner.evidence.store import Store

#: A fault: its kind, its moment, and the problem whose round it hit, if any.
Struck = tuple[str, datetime, str]
#: Candidates within 2 % are level: any of them may be best.
SLOWEST_BEST: Final = 1.02


@dataclass(frozen=True, slots=True)
class Check:
    """One invariant.

    Attributes:
        found: the numbers that the check found.
    """

    what: str
    found: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Told:
    """What clients were told during a storm.

    Attributes:
        candidates: of each problem.
        reports: measurements of every report that a service acknowledged, by the number of its round.
        attacks: requests of the thief.
        accepted: those that no service refused.
    """

    candidates: int
    reports: Mapping[int, int]
    attacks: int
    accepted: int


@dataclass(frozen=True, slots=True)
class Audit:
    """All checks of an audit."""

    checks: tuple[Check, ...]


def audit(
    store: Store, campaign_id: int, faults: Sequence[Struck], limit_seconds: float, recovered: Sequence[datetime] = (),
    told: Told | None = None,
) -> Audit:  # fmt: skip
    """Audits the tables of one campaign.

    Args:
        limit_seconds: time within which a lost round must restart.
        recovered: when outages of the service or database ended; heartbeats are lost during an outage.
        told: of a storm on planted recordings.
    """
    with store.transaction() as session:
        rounds = session.scalars(select(RoundRow).order_by(RoundRow.claimed_at)).all()
        return Audit(
            (
                _ended(session, campaign_id),
                *_once(session, rounds),
                _apart(rounds, "problem_id", "rounds of one problem that overlap in time"),
                _apart(rounds, "worker_id", "rounds of one worker that overlap in time"),
                _served(session),
                _begun_anew(session, rounds, faults, limit_seconds, recovered),
                *(_told(session, rounds, told) if told else ()),
            )
        )


def _ended(session: Session, campaign_id: int) -> Check:
    query = select(CampaignProblemRow.status, func.count()).where(CampaignProblemRow.campaign_id == campaign_id)
    found = {status: count for status, count in session.execute(query.group_by(CampaignProblemRow.status))}
    text = ", ".join(f"{count} {status}" for status, count in sorted(found.items()))
    return Check("every problem ends", text, not found.keys() & {"waiting", "open"})


def _once(session: Session, rounds: Sequence[RoundRow]) -> list[Check]:
    keys = (
        MeasurementRow.study_id, MeasurementRow.config_id, MeasurementRow.stage, MeasurementRow.series,
        MeasurementRow.policy,
    )  # fmt: skip
    groups = select(func.count()).select_from(MeasurementRow).group_by(*keys).having(func.count() > 1)
    twice = session.scalar(select(func.count()).select_from(groups.subquery())) or 0
    kept = session.scalar(select(func.count()).select_from(MeasurementRow)) or 0
    told = sum(row.measured for row in rounds)
    ended = Counter(row.status for row in rounds)
    statuses = ", ".join(f"{count} {status}" for status, count in sorted(ended.items()))
    screened = session.scalar(
        select(func.count()).select_from(MeasurementRow).where(MeasurementRow.stage == "screen")
    ) or 0
    tried = session.scalar(select(func.sum(CampaignProblemRow.tried))) or 0
    return [
        Check("a candidate is measured once in a study", f"{twice} twice of {kept:,}", twice == 0),
        Check(
            "every screening of a reported round is there, and no other",
            f"{told:,} reported, {screened:,} kept; rounds: {statuses}",
            told == screened,
        ),
        Check("problems count what their studies have", f"{tried:,} counted", tried == screened),
    ]  # fmt: skip


def _told(session: Session, rounds: Sequence[RoundRow], told: Told) -> list[Check]:
    refused = told.attacks > 0 and told.accepted == 0
    return [
        _acknowledged(session, rounds, told.reports),
        _as_planted(session, told.candidates),
        Check("the service refuses a thief", f"{told.attacks:,} attacks, {told.accepted} accepted", refused),
    ]


def _acknowledged(session: Session, rounds: Sequence[RoundRow], reports: Mapping[int, int]) -> Check:
    """Every report that was answered with 204 is stored, with all of its measurements."""
    counted = select(MeasurementRow.round_id, func.count()).group_by(MeasurementRow.round_id)
    kept = {number: count for number, count in session.execute(counted)}
    status = {row.id: row.status for row in rounds}
    missing = [number for number, measured in reports.items()
               if status.get(number) not in ("done", "failed") or kept.get(number, 0) != measured]  # fmt: skip
    text = f"{len(reports):,} reports of {sum(reports.values()):,} measurements, {len(missing)} not kept"
    return Check("every acknowledged report is kept", text, bool(reports) and not missing)


def _as_planted(session: Session, candidates: int) -> Check:
    """Every measurement and every best has the time that its recording has."""
    rows = session.execute(
        select(ConfigRow.key, MeasurementRow.median_us, BestRow.id)
        .join(ConfigRow, ConfigRow.id == MeasurementRow.config_id)
        .outerjoin(BestRow, BestRow.measurement_id == MeasurementRow.id)
    ).all()
    planted = planted_us(candidates)
    wrong = sum(row.median_us is None or abs(row.median_us - planted[row.key]) > 1e-9 for row in rows)
    slow = sum(row.id is not None and row.median_us > SLOWEST_BEST * min(planted.values()) for row in rows)
    text = f"{wrong} wrong of {len(rows):,} measurements, {slow} bests more than 2 % slower than the fastest"
    return Check("nothing that is stored is wrong, and the fastest is best", text, not wrong and not slow)


def _apart(rounds: Sequence[RoundRow], name: str, what: str) -> Check:
    """Checks that rounds with the same value of a column do not overlap; a lost round ends when it is declared lost."""
    spans: dict[int, list[tuple[datetime, datetime]]] = defaultdict(list)
    for row in rounds:
        if row.claimed_at is not None and row.ended_at is not None:
            spans[getattr(row, name)].append((utc(row.claimed_at), utc(row.ended_at)))
    overlaps = sum(later[0] < earlier[1] for found in spans.values() for earlier, later in pairwise(sorted(found)))
    return Check(f"no {what}", f"{overlaps} of {sum(map(len, spans.values()))}", overlaps == 0)


def _served(session: Session) -> Check:
    rows = session.execute(
        select(MeasurementRow.outcome, MeasurementRow.verification, CampaignProblemRow.id)
        .select_from(BestRow)
        .join(MeasurementRow, MeasurementRow.id == BestRow.measurement_id)
        .outerjoin(CampaignProblemRow, CampaignProblemRow.measurement_id == MeasurementRow.id)
    ).all()
    bad = sum(row.outcome != "correct" or not row.verification or row.verification["mismatches"] != 0 for row in rows)
    done = session.scalar(
        select(func.count()).select_from(CampaignProblemRow).where(CampaignProblemRow.status == "done")
    )
    text = f"{len(rows)} bests of {done} done problems, {bad} unverified"
    return Check("nothing is served unverified, and all that is done is served", text, bad == 0 and len(rows) == done)


def _begun_anew(
    session: Session, rounds: Sequence[RoundRow], faults: Sequence[Struck], limit: float, recovered: Sequence[datetime]
) -> Check:
    """From the kill of a worker in a round, or from the end of the last outage after it, to the claim of the problem's
    next round."""
    keys = {place: key for place, key in session.execute(select(ProblemRow.id, ProblemRow.key))}
    claims: dict[str, list[datetime]] = defaultdict(list)
    for row in rounds:
        if row.claimed_at is not None:
            claims[keys[row.problem_id]].append(utc(row.claimed_at))
    alone, shared = list[float](), list[float]()
    for kind, at, key in faults:
        after = [claim for claim in claims[key] if claim > at]
        if kind.startswith("worker killed -9") and key and after:
            since = max([at, *(moment for moment in recovered if moment < min(after))])
            (alone if since == at else shared).append((min(after) - since).total_seconds())
    text = f"{len(alone)} in {_span(alone)} after the kill; {len(shared)} in {_span(shared)} after an outage since"
    calm = any(kind == "worker killed -9 in calm" and key for kind, _, key in faults)
    lost = session.scalar(select(func.count()).select_from(WorkerRow).where(WorkerRow.gone_because.like("silent%")))
    return Check(
        f"a killed worker's round begins anew within {limit:g} s while somebody listens",
        f"{text}; {lost} workers were forgotten",
        all(seconds <= limit for seconds in [*alone, *shared]) and (bool(alone) or not calm),
    )  # fmt: skip


def _span(seconds: list[float]) -> str:
    return f"{min(seconds):.1f} to {max(seconds):.1f} s" if seconds else "–"
