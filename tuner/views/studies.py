"""Studies: what was measured, how their finals ended, and which rule picked the winner."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, exists, func, or_, select
from sqlalchemy.orm import Session, joinedload

from space.config import Config
from space.family import is_own
from space.problem import Problem
from tuner.errors import NewerContent, Quarantined, UnknownMeasurement, UnknownStudy
from tuner.evidence import codec, measurements
from tuner.evidence.legality import forbidden_among
from tuner.evidence.models import BestRow, DeviceRow, MeasurementRow, ProblemRow, StudyRow
from tuner.evidence.physics import LEAST_US, MOST_US
from tuner.evidence.picks import LEFT_OUT, STEP, Rivals, standings, tie_band
from tuner.evidence.records import Clocks, Outcome, Provenance, StoredMeasurement
from tuner.evidence.stats import median_interval_us
from tuner.evidence.store import Store
from workers.measurement import Policy


@dataclass(frozen=True, slots=True)
class StudyFacts:
    """A study in short.

    Attributes:
        measured: candidates screened; `failed` counts those that were not correct, by outcome.
        finalists: candidates of the last finals.
        best_us: the fastest correct screening; None before the first.
    """

    id: int
    problem: Problem
    device: str
    device_kind: str
    policy: str
    family: str
    source: str
    generation: int
    status: str
    stopped_because: str
    created_at: datetime
    measured: int
    correct: int
    failed: dict[str, int]
    finalists: int
    best_us: float | None


@dataclass(frozen=True, slots=True)
class Final:
    """One measurement of a study's last finals.

    Attributes:
        behind: share by which it is slower than the fastest of its policy, turn by turn; None unless it is correct.
        surely_slower: whether its samples show it to be slower at all.
        tied: within the tie band of the fastest of ours and the library's or, except under `sustained`, not surely
            slower.
        library: whether cuBLASLt made it.
        served: whether it is the served best.
    """

    measurement_id: int
    config: Config
    policy: str
    outcome: str
    series: int
    samples_us: tuple[float, ...]
    median_us: float | None
    low_us: float | None
    high_us: float | None
    behind: float | None
    surely_slower: bool
    tied: bool
    library: bool
    served: bool
    revoked: bool
    clocks: Clocks | None
    product_joules: float | None


@dataclass(frozen=True, slots=True)
class Pick:
    """The winner under one policy by today's rules, and the rule that picked it.

    Rules may be newer than the best: the sentence then names the measurement that an earlier one chose.
    """

    policy: str
    measurement_id: int
    sentence: str


@dataclass(frozen=True, slots=True)
class StudyInFull:
    """A study with its last finals.

    Attributes:
        tie_bands: by policy, how far behind the fastest of ours another one ties with it, as a share of its time.
        step: how rivals that tie are ordered, except under `sustained`.
        provenance: of its last measurement; None before the first.
    """

    study: StudyFacts
    finals: tuple[Final, ...]
    picks: tuple[Pick, ...]
    tie_bands: dict[str, float]
    step: float
    provenance: Provenance | None


def page(store: Store, problem: Problem | None, device: str | None, before: int, limit: int) -> list[StudyFacts]:
    """Studies with an id below `before`, unless it is 0, newest first; without those that a revocation began and that
    hold nothing, and those of problems that only a newer version reads.
    """
    begun = or_(StudyRow.generation == 0, exists().where(MeasurementRow.study_id == StudyRow.id))
    query = select(StudyRow).where(begun).order_by(StudyRow.id.desc())
    if problem is not None:
        query = query.where(StudyRow.problem.has(key=problem.key))
    if device is not None:
        query = query.where(StudyRow.device.has(name=device))
    with store.transaction() as session:
        found: list[StudyFacts] = []
        # Others take the places of those that are left out.
        while wanted := limit - len(found):
            part = query.where(StudyRow.id < before) if before else query
            rows = _rows(session, part.limit(wanted))
            counts = _counts(session, [row.id for row in rows])
            for row in rows:
                with suppress(NewerContent):
                    found.append(_facts(row, counts[row.id]))
            if len(rows) < wanted:
                break
            before = rows[-1].id
        return found


def in_short(store: Store, study_id: int) -> StudyFacts:
    """One study without its finals.

    Raises:
        UnknownStudy: no study has this id.
    """
    with store.transaction() as session:
        return _one(session, study_id)


def in_full(store: Store, study_id: int) -> StudyInFull:
    """One study with its finals.

    Raises:
        UnknownStudy: no study has this id.
    """
    with store.transaction() as session:
        facts = _one(session, study_id)
        series = measurements.last_series(session, study_id)
        ours = select(MeasurementRow).where(MeasurementRow.study_id == study_id)
        of_finals = ours.where(MeasurementRow.stage == "final", MeasurementRow.series == series)
        finals = measurements.read(session, of_finals) if series else []
        of_running = of_finals.where(measurements.IN_THE_RUNNING).with_only_columns(MeasurementRow.id)
        running = set(session.scalars(of_running))
        last = select(func.max(MeasurementRow.id)).where(MeasurementRow.study_id == study_id).scalar_subquery()
        newest = finals or measurements.read(session, ours.where(MeasurementRow.id == last))
        of_problem = select(BestRow.measurement_id, BestRow.served).join(BestRow.problem).join(BestRow.device).where(
            ProblemRow.key == facts.problem.key, DeviceRow.name == facts.device)  # fmt: skip
        bests = {number: is_served for number, is_served in session.execute(of_problem)}
    rivals = [one for one in finals if one.measurement.outcome is Outcome.CORRECT and one.id in running]
    served = {number for number, is_served in bests.items() if is_served}
    return StudyInFull(
        facts, tuple(_finals(finals, rivals, series, served)), tuple(_picks(facts.problem, rivals, set(bests))),
        {policy.value: tie_band(policy) for policy in Policy}, STEP, newest[-1].provenance if newest else None,
    )  # fmt: skip


def measurement(store: Store, number: int) -> StoredMeasurement:
    """One measurement.

    Raises:
        UnknownMeasurement: none has this id, or its numbers can't be true.
    """
    with store.transaction() as session:
        found = measurements.read(session, select(MeasurementRow).where(MeasurementRow.id == number), Quarantined)
    if not found:
        raise UnknownMeasurement(f"the store has no readable measurement {number}: /v1/measurements lists them")
    return found[0]


def _one(session: Session, study_id: int) -> StudyFacts:
    rows = _rows(session, select(StudyRow).where(StudyRow.id == study_id))
    if not rows:
        raise UnknownStudy(f"the store has no study {study_id}: /v1/studies lists them")
    return _facts(rows[0], _counts(session, [study_id])[study_id])


def _rows(session: Session, query: Select[StudyRow]) -> Sequence[StudyRow]:
    return session.scalars(query.options(joinedload(StudyRow.problem), joinedload(StudyRow.device))).all()


def _facts(row: StudyRow, counts: Mapping[str, Any]) -> StudyFacts:
    return StudyFacts(
        row.id, codec.problem_of(row.problem.key), row.device.name, row.device.kind, row.policy, row.family,
        row.source, row.generation, row.status, row.stopped_because, codec.utc(row.created_at), **counts,
    )  # fmt: skip


def _counts(session: Session, ids: Sequence[int]) -> dict[int, dict[str, Any]]:
    row = MeasurementRow
    last = select(row.study_id, func.max(row.series).label("series")).where(row.study_id.in_(ids)).group_by(
        row.study_id).subquery()  # fmt: skip
    finalists = (
        select(row.study_id, func.count(func.distinct(row.config_id)))
        .join(last, (last.c.study_id == row.study_id) & (last.c.series == row.series))
        .where(row.stage == "final").group_by(row.study_id)
    )  # fmt: skip
    of_finals = {study: count for study, count in session.execute(finalists)}
    screened = (
        select(row.study_id, row.outcome, func.count(),
               func.min(row.median_us).filter(row.median_us.between(LEAST_US, MOST_US)))
        .where(row.study_id.in_(ids), row.stage == "screen").group_by(row.study_id, row.outcome)
    )  # fmt: skip
    found: dict[int, dict[str, Any]] = defaultdict(
        lambda: {"measured": 0, "correct": 0, "failed": {}, "finalists": 0, "best_us": None}
    )
    for study, outcome, count, fastest in session.execute(screened):
        of_study = found[study]
        of_study["measured"] += count
        if outcome == Outcome.CORRECT:
            of_study |= {"correct": count, "best_us": fastest}
        else:
            of_study["failed"] = of_study["failed"] | {outcome: count}
    for study in ids:
        found[study]["finalists"] = of_finals.get(study, 0)
    return found


def _finals(
    finals: Sequence[StoredMeasurement], rivals: Sequence[StoredMeasurement], series: int, served: set[int]
) -> list[Final]:
    of_policy: dict[str, list[StoredMeasurement]] = defaultdict(list)
    for rival in rivals:
        of_policy[rival.measurement.policy].append(rival)
    stands = {
        rival.id: one
        for alike in of_policy.values()
        for rival, one in zip(alike, standings([each.measurement for each in alike], alike[0].device), strict=True)
    }
    made = []
    for stored in finals:
        one, stand = stored.measurement, stands.get(stored.id)
        low_us, high_us = median_interval_us(one, stored.device) if one.samples_us else (None, None)
        made.append(Final(
            stored.id, one.config, one.policy.value, one.outcome.value, series, tuple(one.samples_us),
            one.median_us if one.samples_us else None, low_us, high_us, stand.behind if stand else None,
            stand.surely if stand else False,
            stand is not None and stand.tied,
            not is_own(one.config), stored.id in served, stored.revoked, one.clocks,
            one.product_joules,
        ))  # fmt: skip
    last = float("inf")
    return sorted(made, key=lambda final: (
        final.policy, last if final.behind is None else final.behind, final.median_us or last, final.measurement_id
    ))  # fmt: skip


def _picks(problem: Problem, finals: Sequence[StoredMeasurement], bests: set[int]) -> list[Pick]:
    """The winners of finals by today's rules, which may be newer than the bests that they gave.

    Args:
        finals: correct ones.
        bests: measurements that are best of their problem under some policy.
    """
    device = finals[0].device if finals else ""
    broken = forbidden_among(problem, (one.measurement.config for one in finals), device)
    legal = [one for one in finals if one.measurement.config not in broken]
    if not legal:
        return []
    rivals = Rivals(problem, device, [one.measurement for one in legal])
    picks = []
    for policy in sorted({one.measurement.policy for one in legal}):
        of_policy = [one for one in legal if one.measurement.policy is policy]
        won = rivals.winner(policy)
        winner = next(rival for rival in of_policy if rival.measurement is won)
        stood = [each for each in finals if each.measurement.policy is policy and each.id in bests - {winner.id}]
        sentence = _why_picked(winner, of_policy)
        if stood and (rule := broken.get(stood[0].measurement.config)):
            sentence += f"; measurement {stood[0].id}, which was picked, breaks {rule} by now"
        elif stood:
            sentence += (f"; an earlier version's rule picked measurement {stood[0].id}, which stands until a faster "
                         "one or another program replaces it")  # fmt: skip
        picks.append(Pick(policy.value, winner.id, sentence))
    return picks


def _why_picked(winner: StoredMeasurement, rivals: Sequence[StoredMeasurement]) -> str:
    if not is_own(winner.measurement.config):
        return f"the library's: each of ours {LEFT_OUT}"
    ours = [rival for rival in rivals if is_own(rival.measurement.config)]
    stands = standings([rival.measurement for rival in ours], winner.device)
    stand = stands[ours.index(winner)]
    tied, band = sum(each.tied for each in stands), tie_band(winner.measurement.policy)
    if not stand.tied:
        return f"{stand.behind:.1%} behind the fastest of ours; each one ahead by more than a tie {LEFT_OUT}"
    if tied == 1:
        return f"the fastest of our {len(ours)}: no other is within {band:.0%}"
    rule = "steps of 0.5 %, then its time under burst, then the analytic estimate, then the order of enumeration"
    if winner.measurement.policy is Policy.SUSTAINED:
        rule = "their place in the finals"
    place = "the fastest" if stand.behind == 0 else f"{stand.behind:.1%} behind the fastest"
    out = f"; left out is each that {LEFT_OUT}" if len(ours) < len(rivals) else ""
    return f"{place}; {tied} of our {len(ours)} tie within {band:.0%}, and are ordered by {rule}{out}"
