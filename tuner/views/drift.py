"""Drift: which programs a device's bests were measured with, and how times moved from one program to the next."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import and_, select
from sqlalchemy.orm import aliased

from tuner.evidence.codec import utc
from tuner.evidence.models import BestChangeRow, BestRow, DeviceRow, MeasurementRow, RevokedRow
from tuner.evidence.physics import in_range
from tuner.evidence.store import Store
from tuner.views.programs import Programs


@dataclass(frozen=True, slots=True)
class ProgramFacts:
    """A driver, a compiler, kernels and a library that measured bests.

    Attributes:
        first_at, last_at: when a measurement with it first and last became a best.
        bests: served ones that it measured.
    """

    driver: str
    nvrtc: str
    kernels: str
    cublaslt: str
    first_at: datetime
    last_at: datetime
    bests: int


@dataclass(frozen=True, slots=True)
class ProgramChange:
    """Bests that passed from one program to another; both are places in `Drift.programs`.

    Attributes:
        before, after: places in `Drift.programs`.
        geometric_mean: new time over old time: above 1 is slower.
    """

    before: int
    after: int
    first_at: datetime
    last_at: datetime
    problems: int
    geometric_mean: float


@dataclass(frozen=True, slots=True)
class Drift:
    """The programs that measured a device's bests, oldest first, and the changes between them."""

    device: str
    programs: tuple[ProgramFacts, ...]
    changes: tuple[ProgramChange, ...]


_Program = tuple[str, str, str, str]


def drift(store: Store, device: str) -> Drift:
    """How the bests of a device moved with the programs that measured them; what was revoked says nothing of one."""
    new, old = aliased(MeasurementRow), aliased(MeasurementRow)
    revoked = select(RevokedRow.measurement_id)
    query = (
        select(BestChangeRow.at, BestChangeRow.problem_id, new.provenance_id, new.median_us, old.provenance_id,
               old.median_us)
        .join(BestChangeRow.device).join(new, new.id == BestChangeRow.measurement_id)
        .outerjoin(old, and_(old.id == BestChangeRow.previous_id, old.id.not_in(revoked)))
        .where(DeviceRow.name == device, new.id.not_in(revoked)).order_by(BestChangeRow.id)
    )  # fmt: skip
    served = (
        select(MeasurementRow.provenance_id).join(BestRow, BestRow.measurement_id == MeasurementRow.id)
        .join(BestRow.device).where(DeviceRow.name == device, BestRow.served)
    )  # fmt: skip
    with store.transaction() as session:
        rows, ran = session.execute(query).all(), list(session.scalars(served))
        ids = {number for row in rows for number in (row[2], row[4]) if number is not None}
        known = {number: _program(parts) for number, parts in Programs().of(session, ids | set(ran)).items()}
    now = Counter(known[number] for number in ran)
    spans: dict[_Program, list[datetime]] = {}
    moved: dict[tuple[_Program, _Program], list[tuple[datetime, int, float]]] = {}
    for at, problem, after, after_us, before, before_us in rows:
        spans.setdefault(known[after], []).append(utc(at))
        if before is not None and known[before] != known[after] and in_range(after_us) and in_range(before_us):
            moved.setdefault((known[before], known[after]), []).append((utc(at), problem, after_us / before_us))
    places = {program: place for place, program in enumerate(spans)}
    programs = tuple(
        ProgramFacts(driver, nvrtc, kernels, cublaslt, min(at), max(at), now[driver, nvrtc, kernels, cublaslt])
        for (driver, nvrtc, kernels, cublaslt), at in spans.items()
    )
    changes = tuple(
        ProgramChange(places[before], places[after], min(at for at, _, _ in each), max(at for at, _, _ in each),
                      len({problem for _, problem, _ in each}),
                      statistics.geometric_mean(ratio for _, _, ratio in each))
        for (before, after), each in moved.items() if before in places
    )  # fmt: skip
    return Drift(device, programs, changes)


def _program(parts: dict[str, str]) -> _Program:
    return parts["driver"], parts["nvrtc"], parts["kernels"], parts["cublaslt"]
