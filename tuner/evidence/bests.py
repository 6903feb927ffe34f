"""Bests in a session: replaced by better ones, read with their evidence."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, cast

from sqlalchemy import Select, Table, Text, bindparam, func, select, update
from sqlalchemy import cast as cast_column
from sqlalchemy.orm import Session, joinedload

from space.config import Config
from space.family import is_own
from space.problem import Problem
from tuner.errors import NewerContent, NothingMeasured, Quarantined, StoreError
from tuner.evidence import changes, codec, measurements
from tuner.evidence.best_changes import change_to_undo, judge, past_of, record, undoing
from tuner.evidence.legality import forbidden
from tuner.evidence.measurements import IN_THE_RUNNING
from tuner.evidence.models import BestRow, ConfigRow, DeviceRow, MeasurementRow, ProblemRow, ProvenanceRow, RevokedRow
from tuner.evidence.physics import out_of_range, quarantined, unreadable
from tuner.evidence.picks import DEPLOYED, LIBRARY, precedence
from tuner.evidence.records import Best, Outcome, Provenance, StoredMeasurement, Unreadable
from tuner.evidence.refutations import refuting
from tuner.evidence.remaining import remaining_bests
from tuner.evidence.similarity import REACH, octaves
from tuner.evidence.studies import device_id, problem_id
from workers.measurement import Policy, Program

#: Relations that `codec.best` reads.
WHOLE: Final = (
    joinedload(BestRow.problem),
    joinedload(BestRow.device),
    *(joinedload(BestRow.measurement).options(option) for option in measurements.WHOLE),
)
_BEST, _PROBLEM, _DEVICE, _MEASUREMENT, _CONFIG, _PROVENANCE, _REVOKED = (
    cast(Table, row.__table__)
    for row in (BestRow, ProblemRow, DeviceRow, MeasurementRow, ConfigRow, ProvenanceRow, RevokedRow)
)
#: Every best, in the columns that `codec.best_of` reads. Objects of the mapped classes would take ten times as long.
SELECTED: Final = select(
    _BEST.c.version, *(_BEST.c[name] for name in codec.OF_BEST), _MEASUREMENT, _PROBLEM.c.key.label("problem_key"),
    _DEVICE.c.name.label("device"), _DEVICE.c.kind.label("device_kind"), _CONFIG.c.key.label("config_key"),
    cast_column(_PROVENANCE.c.content, Text).label("provenance"), _REVOKED.c.revocation_id,
).select_from(
    _BEST.join(_PROBLEM, _PROBLEM.c.id == _BEST.c.problem_id)
    .join(_DEVICE, _DEVICE.c.id == _BEST.c.device_id)
    .join(_MEASUREMENT, _MEASUREMENT.c.id == _BEST.c.measurement_id)
    .join(_CONFIG, _CONFIG.c.id == _MEASUREMENT.c.config_id)
    .join(_PROVENANCE, _PROVENANCE.c.id == _MEASUREMENT.c.provenance_id)
    .outerjoin(_REVOKED, _REVOKED.c.measurement_id == _MEASUREMENT.c.id)
)  # fmt: skip
#: The served ones of the problems `keys` on `device`; one measured on a GPU after a replayed one.
SERVED_OF: Final = SELECTED.where(
    _BEST.c.served, _DEVICE.c.name == bindparam("device"), _PROBLEM.c.key.in_(bindparam("keys", expanding=True))
).order_by(_DEVICE.c.kind.desc())

_log = logging.getLogger("gemmtune.bests")
#: Most bests compared, and most used.
_MOST_LOOKED_AT: Final = 2_000
_MOST_NEAR: Final = 8
#: Leaders of other studies of a problem that the next one begins with: a search tries few before its results decide.
_LEADERS: Final = 2


def put(session: Session, found: Sequence[Best]) -> list[str]:
    """Stores bests of one problem on one device, one for each policy, unless the old one is better.

    The database refuses a best whose measurement is missing or not correct.

    Returns:
        Sentences on those that did not become best, or are not served, with the reasons.
    """
    first = found[0]
    of = {"problem_id": problem_id(session, first.problem), "device_id": device_id(session, first.device,
                                                                                   first.device_kind)}  # fmt: skip
    # First: waits for any other writer of bests before a row is read.
    changes.lock(session, "best")
    rows, mended = _without_refuted(session, of, found)
    remarks, taken, accepted, newest = list[str](), mended, False, first.winner.provenance
    # The served one last: readers that follow changes read the served ones.
    for best in reversed(found):
        row = rows.get(best.policy.value)
        wrong = quarantined(best.device) or _untrue(session, best.winner)
        accepted, why = (False, wrong) if wrong else _judge(session, of, row, best)
        if accepted:
            row = rows[best.policy.value] = row or BestRow(**of, policy=best.policy.value, served=False)
            replace(session, row, best, why)
            taken = True
        else:
            remarks.append(f"measurement {best.winner.id} of {best.problem.shape} on {best.device} is not best under "
                           f"{best.policy.value}: {why}")  # fmt: skip
            _log.warning("%s (measured by %s)", remarks[-1], best.winner.author)
            if best is first and row:
                # What stands under the policy that decides goes on deciding, whatever was taken under others.
                newest = codec.provenance_of(row.measurement.provenance.content) or newest
    for policy in sorted(rows):
        # What nothing that was measured replaces.
        if wrong_in := refuting(session, rows[policy].measurement_id):
            remove(session, rows.pop(policy), f"measurement {wrong_in} found its build wrong")
            taken = True
    served = serve(session, first.problem, first.device, newest, rows) if taken and rows else ""
    if accepted and served in DEPLOYED and first.policy not in DEPLOYED:
        remarks.append(f"measurement {first.winner.id} of {first.problem.shape} on {first.device} is best under "
                       f"{first.policy}, and not served: {served} decides, under which another one stands")  # fmt: skip
    return remarks


def _without_refuted(
    session: Session, of: dict[str, int], new: Sequence[Best]
) -> tuple[dict[str, BestRow], bool]:
    """The rows of a problem's bests by policy, those whose build was found wrong replaced by the best of all other
    finals; and whether any was.

    Those of whoever found it wrong are among them, and may be slower than what it had left behind.

    Args:
        new: where the config of one is the best of all, it is judged later, as the newest measurement of it.
    """
    rows = rows_of(session, of)
    found = {policy: refuting(session, row.measurement_id) for policy, row in rows.items()}
    refuted = {policy: number for policy, number in found.items() if number}
    if not refuted:
        return rows, False
    left = remaining_bests(session, of, new[0].problem, new[0].device)
    again = {_tried(best) for best in new if not _untrue(session, best.winner)}
    mended = [policy for policy in refuted if policy in left and _tried(left[policy]) not in again]
    for policy in mended:
        replace(session, rows[policy], left[policy], f"measurement {refuted[policy]} found the old one's build wrong")
        # Its measurement is read anew.
        session.expire(rows[policy])
    return (rows_of(session, of) if mended else rows), bool(mended)


def _tried(best: Best) -> tuple[Policy, Config, Program]:
    return best.policy, best.config, best.winner.provenance.program


def _untrue(session: Session, winner: StoredMeasurement) -> str:
    """Why a measurement can't be best, whatever its time; empty if it can."""
    # What readers leave out must hide no best that they can read.
    if wrong := unreadable(winner.measurement) or out_of_range(winner.measurement):
        return wrong
    # Whoever decided this best may have read its finals before.
    if session.get(RevokedRow, winner.id):
        return "it was revoked"
    wrong_in = refuting(session, winner.id)
    return f"measurement {wrong_in} found the same build wrong" if wrong_in else ""


def _judge(session: Session, of: dict[str, int], row: BestRow | None, new: Best) -> tuple[bool, str]:
    old = readable(codec.best_columns(row)) if row else None
    if row and isinstance(old, NewerContent) and _comes_back(session, of, row, new):
        return False, "a newer version's, which replaced its program, stands"
    if isinstance(old, StoreError):
        return True, "the old one cannot be read"
    if old and (broken := forbidden(old.problem, old.config, old.device)):
        if _kernels_come_back(session, of, old, new):
            return False, f"the old one breaks {broken}, but not by the rules of a newer version, which measured it"
        return True, f"the old one breaks {broken}"
    if old and (wrong_in := refuting(session, old.winner.id)):
        return True, f"measurement {wrong_in} found the old one's build wrong"
    if new.winner.measurement.outcome is not Outcome.CORRECT:
        return True, "not correct"  # which the database refuses
    past = past_of(session, of, new.policy.value, old.winner.id if old else None)
    accepted, why = judge(old, new, past)
    if old and not accepted and new.winner.id not in {each.measurement_id for each in past}:
        same = new.winner.id in {each.id for each in measurements.finals_beside(session, old.winner.id)}
        why += "; an earlier version's rule picked that one from the same finals" if same else ""
    return accepted, why


def _comes_back(session: Session, of: dict[str, int], row: BestRow, new: Best) -> bool:
    """Whether a best's program was replaced by that of a best which only another version reads."""
    by, program = codec.provenance_of(row.measurement.provenance.content), new.winner.provenance.program
    if by is not None and by.program == program:
        return False
    return program in {each.provenance.program for each in past_of(session, of, row.policy, row.measurement_id)}


def _kernels_come_back(session: Session, of: dict[str, int], old: Best, new: Best) -> bool:
    """Whether a best's kernels were replaced by those of another one, which a newer version has then measured.

    Drivers and compilers differ between nodes of one version.
    """
    then, now = (best.winner.provenance.kernel_source_digest for best in (old, new))
    past = past_of(session, of, old.policy.value, old.winner.id)
    return now != then and now in {each.provenance.kernel_source_digest for each in past}


def rows_of(session: Session, of: dict[str, int]) -> dict[str, BestRow]:
    """The rows of a problem's bests on a device, by policy."""
    return {row.policy: row for row in session.scalars(select(BestRow).filter_by(**of).options(*WHOLE))}


def replace(session: Session, row: BestRow, best: Best, reason: str) -> None:
    """Writes a best into its row, and its change into the history."""
    version = changes.count(session, "best")
    if row.measurement_id != best.winner.id:
        record(session, row, best.winner.id, reason, version)
    row.measurement_id, row.outcome = best.winner.id, best.winner.measurement.outcome.value
    row.versus_first = asdict(best.versus_first) if best.versus_first else None
    row.versus_best = asdict(best.versus_best) if best.versus_best else None
    row.runner_up = best.runner_up.key if best.runner_up else ""
    row.tried, row.failed, row.version = best.tried, dict(best.failed), version
    session.add(row)
    session.flush()


def remove(session: Session, row: BestRow, reason: str) -> None:
    """Deletes a best, and writes that into the history."""
    record(session, row, None, reason, changes.count(session, "best"))
    session.delete(row)
    session.flush()
    # Readers that drop it find the replayed one again, which it hid.
    same = select(DeviceRow.id).where(DeviceRow.name == row.device.name, DeviceRow.id != row.device_id)
    for other in session.scalars(
        select(BestRow).where(BestRow.problem_id == row.problem_id, BestRow.device_id.in_(same), BestRow.served)
    ):
        other.version = changes.count(session, "best")


def serve(
    session: Session, problem: Problem, device: str, newest: Provenance | None, rows: Mapping[str, BestRow]
) -> str:
    """Chooses which of a problem's bests is served: the first policy of the newest one's program, if it has any under
    which programs run.

    A best under a policy of another version, which this one can't read, is served only where there is no other.

    Returns:
        The policy of the served one.
    """
    ran = newest.program if newest else None
    programs = {
        policy: by.program if (by := codec.provenance_of(content)) else None
        for policy, content in session.execute(
            select(BestRow.policy, ProvenanceRow.content)
            .join(MeasurementRow, MeasurementRow.id == BestRow.measurement_id)
            .join(ProvenanceRow, ProvenanceRow.id == MeasurementRow.provenance_id)
            .where(BestRow.id.in_([row.id for row in rows.values()]))
        )
    }
    order = [policy.value for policy in precedence(problem, device) if policy.value in programs] or sorted(programs)
    chosen = next((policy for policy in order if programs[policy] == ran), order[0])
    # What no program with plain neighbours sees, as times of an old recording, decides only where all are such.
    if chosen not in DEPLOYED and order[0] in DEPLOYED:
        chosen = order[0]
    session.execute(
        update(BestRow).where(BestRow.id.in_([row.id for row in rows.values()])).values(served=False),
        execution_options={"synchronize_session": False},
    )
    served = rows[chosen]
    # Readers that follow changes read the served ones: the last change has to be one of them. It may be a removal:
    # after it they hold nothing of the problem.
    last = changes.read(session)["best"]
    version = served.version if served.version == last else changes.count(session, "best")
    session.execute(
        update(BestRow).where(BestRow.id == served.id).values(served=True, version=version),
        execution_options={"synchronize_session": False},
    )
    return chosen


def roll_back(session: Session, problem: Problem, device: str, number: int) -> int:
    """Undoes a change: restores the best that it replaced. Returns the number of the new change.

    Raises:
        NothingMeasured: there is no such change, or nothing to go back to.
    """
    changes.lock(session, "best")
    undone = change_to_undo(session, problem, device, number)
    of = {"problem_id": undone.problem_id, "device_id": undone.device_id}
    rows = rows_of(session, of)
    if (row := rows.get(undone.policy)) and row.measurement_id == undone.previous_id:
        raise NothingMeasured(f"measurement {undone.previous_id}, best before change {number}, is best already")
    row = rows.setdefault(undone.policy, row or BestRow(**of, policy=undone.policy, served=False, outcome="correct"))
    version = changes.count(session, "best")
    made = record(session, row, undone.previous_id, undoing(number), version)
    assert undone.previous_id is not None
    row.measurement_id, row.version = undone.previous_id, version
    for name, value in (undone.previous_evidence or {}).items():
        setattr(row, name, value)
    new = row.id is None
    session.add(row)
    session.flush()
    if new:
        # The first policy decides again, whoever measured under the others since.
        serve(session, problem, device, None, rows)
    elif not row.served and (served := next((each for each in rows.values() if each.served), None)):
        served.version = changes.count(session, "best")
    return made.id


def read(session: Session, query: Select[Any], without: type[StoreError] = Quarantined) -> list[Best]:
    """The bests that a query, made from `SELECTED`, selects, in its order; `without` is as in `codec.bests_of`.

    Raises:
        StoreError: this version cannot read one.
    """
    return codec.bests_of((row._asdict() for row in session.execute(query)), without)


def readable(columns: Mapping[str, Any]) -> Best | StoreError:
    """A best, or the error if this version cannot read it."""
    try:
        return codec.best_of(columns)
    except StoreError as error:
        return error


def followed(columns: Mapping[str, Any]) -> Best | Unreadable:
    """A best for those who follow changes: they have to drop what an unreadable one replaced."""
    found = readable(columns)
    if isinstance(found, Best):
        return found
    return Unreadable(columns["problem_key"], columns["device"], columns["device_kind"], found)


def winners_near(session: Session, problem: Problem, device: str, study_id: int | None) -> tuple[Config, ...]:
    """Own configs that a study of a problem on a device model begins with, the most promising first.

    Those that other studies of the problem, as with another driver, found fastest; then those that won or came second
    on the problem itself and on similar ones, most similar first. These differ in their extents alone and are near
    enough (`similarity.reaches`). Configs that this version does not know are skipped.

    Args:
        study_id: the study; None to leave out what others of the problem found.
    """
    head, tail = problem.key_around_shape()
    query = (
        select(ProblemRow.key, ConfigRow.key, BestRow.runner_up)
        .select_from(BestRow)
        .join(ProblemRow, BestRow.problem_id == ProblemRow.id)
        .join(DeviceRow, BestRow.device_id == DeviceRow.id)
        .join(MeasurementRow, BestRow.measurement_id == MeasurementRow.id)
        .join(ConfigRow, MeasurementRow.config_id == ConfigRow.id)
        .where(DeviceRow.name == device, BestRow.served)
        .where(ProblemRow.key.like(f"{head}%{tail}"))
    )
    for column, extent in zip((ProblemRow.m, ProblemRow.n, ProblemRow.k), problem.extents, strict=True):
        query = query.where(column.between(extent // REACH, extent * REACH))
    found = [(codec.problem_of(key), won, second) for key, won, second in session.execute(query.limit(_MOST_LOOKED_AT))]
    found.sort(key=lambda near: (octaves(problem, near[0]), near[0].key))
    near = [key for _, won, second in found[:_MOST_NEAR] for key in (won, second) if key]
    ahead = () if study_id is None else _leaders_elsewhere(session, problem, device, study_id)
    keys = dict.fromkeys([*ahead, *near])
    configs = [codec.known_config(key) for key in keys]
    return tuple(config for config in configs if config and is_own(config))


def _leaders_elsewhere(session: Session, problem: Problem, device: str, study_id: int) -> Sequence[str]:
    """Texts of the configs that other studies of the same problem screened as the fastest."""
    fastest_us = func.min(MeasurementRow.median_us)
    query = (
        select(ConfigRow.key)
        .join(MeasurementRow, MeasurementRow.config_id == ConfigRow.id)
        .join(ProblemRow, MeasurementRow.problem_id == ProblemRow.id)
        .join(DeviceRow, MeasurementRow.device_id == DeviceRow.id)
        .where(ProblemRow.key == problem.key, DeviceRow.name == device, MeasurementRow.study_id != study_id)
        .where(MeasurementRow.stage == "screen", MeasurementRow.outcome == Outcome.CORRECT.value, IN_THE_RUNNING)
        .where(ConfigRow.family != LIBRARY)
    )
    return session.scalars(query.group_by(ConfigRow.key).order_by(fastest_us, ConfigRow.key).limit(_LEADERS)).all()
