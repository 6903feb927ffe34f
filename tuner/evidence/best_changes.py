"""Changes of bests: which measurement may replace which, the history of changes, and how to undo one.

A best is compared under one policy with the one that it would replace. A slower one replaces a faster one only if the
faster one's program is gone: its kernels, compiler, driver or library have changed. A program that was replaced does
not come back by itself, so workers of two versions don't overwrite each other's bests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Select, select
from sqlalchemy.orm import Session, aliased

from space.problem import Problem
from tuner.errors import NothingMeasured, StoreError
from tuner.evidence import codec
from tuner.evidence.legality import forbidden
from tuner.evidence.measurements import IN_THE_RUNNING
from tuner.evidence.models import (
    BestChangeRow,
    BestRow,
    ConfigRow,
    DeviceRow,
    MeasurementRow,
    ProblemRow,
    ProvenanceRow,
    RevokedRow,
)
from tuner.evidence.records import Best, BestChange, Policy, Provenance, Removed
from tuner.evidence.refutations import refuting
from tuner.hints import device_option, flags_of

#: Columns of a best beside its measurement: what a rollback restores.
EVIDENCE: Final = ("versus_first", "versus_best", "runner_up", "tried", "failed")
#: Reason of a change that undoes another one.
_UNDOING: Final = re.compile(r"change (\d+) was rolled back")
#: Changes of bests that this version can read: a newer one may measure under more policies.
_READABLE: Final = BestChangeRow.policy.in_([policy.value for policy in Policy])


@dataclass(frozen=True, slots=True)
class Past:
    """A measurement that was best before, and its program."""

    measurement_id: int
    provenance: Provenance


def judge(old: Best | None, new: Best, past: Iterable[Past]) -> tuple[bool, str]:
    """Whether a new best replaces the old one, and why or why not.

    Args:
        past: of the same problem, device and policy, without the old one.
    """
    if old is None:
        return True, "the first that was measured"
    past = list(past)
    if new.winner.id in {each.measurement_id for each in past}:
        return False, f"measurement {new.winner.id} was best before and was replaced"
    before, after = old.winner.provenance, new.winner.provenance
    again = new.winner.id != old.winner.id and new.config == old.config and after.program == before.program
    if again and new.median_us == old.median_us:
        return False, "measured again: the same time"
    times = f"{new.median_us:.6g} µs instead of {old.median_us:.6g} µs"
    if after.rotation_bytes < before.rotation_bytes:
        return False, f"{times}, but its operands rotated through fewer bytes, of which L2 keeps a part"
    if new.median_us <= old.median_us:
        if after.kernels != before.kernels and after.kernels in {each.provenance.kernels for each in past}:
            return False, f"faster, {times}, but its kernels or library were replaced by newer ones"
        return True, f"faster: {times}"
    if after.program == before.program:
        return False, f"slower: {times}, by the same program"
    if after.program in {each.provenance.program for each in past}:
        return False, f"slower: {times}, and its program was replaced by another one"
    return True, f"slower: {times}, but the old program is gone: {_difference(before, after)}"


def _difference(before: Provenance, after: Provenance) -> str:
    names = ("kernel source", "nvrtc", "driver", "cuBLASLt", "rotation in bytes")
    changed = zip(names, map(str, before.program), map(str, after.program), strict=True)
    return ", ".join(f"{name} {old[:12]} is now {new[:12]}" for name, old, new in changed if old != new)


def past_of(session: Session, of: Mapping[str, int], policy: str, current: int | None) -> list[Past]:
    """Every earlier best of a problem on a device under a policy, without revoked ones: those replaced no program."""
    changed = select(BestChangeRow).filter_by(**of, policy=policy)
    ids = {
        number
        for row in session.scalars(changed)
        for number in (row.measurement_id, row.previous_id)
        if number is not None and number != current
    }
    if not ids:
        return []
    query = select(MeasurementRow.id, ProvenanceRow.content).join(
        ProvenanceRow, ProvenanceRow.id == MeasurementRow.provenance_id
    )
    rows = session.execute(query.where(MeasurementRow.id.in_(ids), IN_THE_RUNNING))
    return [Past(number, by) for number, content in rows if (by := codec.provenance_of(content))]


def record(session: Session, row: BestRow, measurement_id: int | None, reason: str, version: int) -> BestChangeRow:
    """Records the change of a best, before its row changes.

    Args:
        row: of the best; new where there was none.
        measurement_id: of the new best; None where it is removed.
    """
    previous = {name: getattr(row, name) for name in EVIDENCE} if row.measurement_id else None
    made = BestChangeRow(
        problem_id=row.problem_id, device_id=row.device_id, policy=row.policy, measurement_id=measurement_id,
        previous_id=row.measurement_id, previous_evidence=previous, reason=reason, at=datetime.now(UTC),
        version=version,
    )  # fmt: skip
    session.add(made)
    return made


def page(session: Session, problem: Problem, device: str, after: int = 0, limit: int = 1_000) -> list[BestChange]:
    """Changes of the bests of a problem on a device with an id above `after`, in order.

    Those under policies of another version are left out.
    """
    query = _changes().where(ProblemRow.key == problem.key, DeviceRow.name == device, BestChangeRow.id > after)
    return [_change(*row) for row in session.execute(query.where(_READABLE).order_by(BestChangeRow.id).limit(limit))]


def removed_between(session: Session, version: int, last: int, limit: int) -> list[tuple[int, Removed]]:
    """Removals of bests after `version`, up to `last`, each with its number, in order."""
    query = select(BestChangeRow.version, ProblemRow.key, DeviceRow.name, DeviceRow.kind)
    query = query.join(BestChangeRow.problem).join(BestChangeRow.device)
    query = query.where(BestChangeRow.measurement_id.is_(None), BestChangeRow.version > version)
    rows = session.execute(query.where(BestChangeRow.version <= last).order_by(BestChangeRow.version).limit(limit))
    return [(number, Removed(key, name, kind)) for number, key, name, kind in rows]


def change_to_undo(session: Session, problem: Problem, device: str, number: int) -> BestChangeRow:
    """The change of a problem's bests on a device with this number.

    Raises:
        NothingMeasured: there is no such change, nothing stood before it, or what stood was revoked, found wrong, or
            can't be served.
    """
    ours = select(BestChangeRow).join(BestChangeRow.problem).join(BestChangeRow.device)
    ours = ours.where(_READABLE, ProblemRow.key == problem.key, DeviceRow.name == device, BestChangeRow.id == number)
    row = session.scalars(ours).one_or_none()
    if row is None:
        listing = f"gemmtune best {problem.shape}{flags_of(problem)}{device_option(device)} --history"
        raise NothingMeasured(f"the best of {problem.shape} on {device} has no change {number}: `{listing}` lists them")
    if row.previous_id is None:
        raise NothingMeasured(f"change {number} set the first best of {problem.shape}: nothing was best before it")
    if session.get(RevokedRow, row.previous_id) is not None:
        raise NothingMeasured(f"measurement {row.previous_id}, best before change {number}, was revoked")
    if wrong_in := refuting(session, row.previous_id):
        raise NothingMeasured(f"measurement {row.previous_id}, best before change {number}, can't come back: "
                              f"measurement {wrong_in} found the same build wrong")  # fmt: skip
    if why := _unservable(session, row.previous_id, problem, device):
        raise NothingMeasured(f"measurement {row.previous_id}, best before change {number}, can't be served: {why}")
    return row


def _unservable(session: Session, measurement_id: int, problem: Problem, device: str) -> str:
    """Why this version would not serve a measurement's config; empty if it would."""
    query = select(ConfigRow.key).join(MeasurementRow.config).where(MeasurementRow.id == measurement_id)
    try:
        rule = forbidden(problem, codec.config_of(session.scalars(query).one()), device)
    except StoreError as error:
        return str(error)
    return f"a rule forbids its config by now, {rule}" if rule else ""


def undoing(number: int) -> str:
    """The reason of a change that undoes this one."""
    return f"change {number} was rolled back"


def rolled_back(session: Session, of: Mapping[str, int]) -> set[int]:
    """Measurements of a problem on a device whose becoming best was undone, and stayed so."""
    query = select(BestChangeRow).filter_by(**of).where(BestChangeRow.reason.endswith("was rolled back"))
    # By change: those that undo one, what each holds out of the running, and what those held that were taken back.
    undoing, held, freed = set[int](), dict[int, set[int | None]](), dict[int, set[int | None]]()
    for row in session.scalars(query.order_by(BestChangeRow.id)):
        said = _UNDOING.fullmatch(row.reason)
        number = int(said[1]) if said else 0
        if number in undoing:
            # It takes an undoing back, and judges nothing itself.
            freed[row.id] = held.pop(number, set())
        else:
            undoing.add(row.id)
            undone = session.get(BestChangeRow, number)
            # A later best may stand in place of what the undone change set.
            held[row.id] = {row.previous_id, undone.measurement_id if undone else None} | freed.get(number, set())
        for each in held.values():
            each.discard(row.measurement_id)
    return {number for each in held.values() for number in each if number is not None}


def _changes() -> Select[*tuple[Any, ...]]:
    new, old, new_config, old_config = (
        aliased(MeasurementRow), aliased(MeasurementRow), aliased(ConfigRow), aliased(ConfigRow)
    )  # fmt: skip
    return (
        select(BestChangeRow, new_config.key, new.median_us, old_config.key, old.median_us)
        .join(BestChangeRow.problem)
        .join(BestChangeRow.device)
        .outerjoin(new, new.id == BestChangeRow.measurement_id)
        .outerjoin(new_config, new_config.id == new.config_id)
        .outerjoin(old, old.id == BestChangeRow.previous_id)
        .outerjoin(old_config, old_config.id == old.config_id)
    )


def _change(
    row: BestChangeRow, config: str | None, us: float | None, old_config: str | None, old_us: float | None
) -> BestChange:
    return BestChange(
        row.id, Policy(row.policy), row.measurement_id, config, us, row.previous_id, old_config, old_us, row.reason,
        codec.utc(row.at),
    )  # fmt: skip
