"""Bests in a session: replaced whole, read with their evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from sqlalchemy import Select, select, update
from sqlalchemy.orm import Session, joinedload

from space.config import Config
from space.problem import Problem
from space.registry import family_named
from tuner.errors import StoreError
from tuner.evidence import changes, codec, measurements
from tuner.evidence.kinship import REACH, octaves
from tuner.evidence.models import BestRow, ConfigRow, DeviceRow, MeasurementRow, ProblemRow
from tuner.evidence.records import Best
from tuner.evidence.studies import device_id, problem_id

#: Relations that `codec.best` reads.
WHOLE: Final = (
    joinedload(BestRow.problem),
    joinedload(BestRow.device),
    *(joinedload(BestRow.measurement).options(option) for option in measurements.WHOLE),
)

#: Most bests compared, and most used.
_MOST_LOOKED_AT: Final = 2_000
_MOST_NEAR: Final = 8


def put(session: Session, bests: Sequence[Best]) -> None:
    """Stores bests of one problem on one device, one for each policy; one of them is served.

    The database refuses a best whose measurement is missing or not correct.
    """
    of = {
        "problem_id": problem_id(session, bests[0].problem),
        "device_id": device_id(session, bests[0].device, bests[0].device_kind),
    }
    # Readers that follow changes read the served ones: the last change has to be one of them.
    for best in sorted(bests, key=lambda best: best.served):
        # First: waits for any other writer of these bests before a row is read.
        version = changes.count(session, "best")
        if best.served:
            session.execute(update(BestRow).filter_by(**of).values(served=False))
        measured = best.winner.measurement
        of_policy = of | {"policy": measured.policy.value}
        row = session.scalars(select(BestRow).filter_by(**of_policy)).one_or_none() or BestRow(**of_policy)
        row.measurement_id, row.outcome = best.winner.id, measured.outcome.value
        row.versus_first = asdict(best.versus_first) if best.versus_first else None
        row.versus_best = asdict(best.versus_best) if best.versus_best else None
        row.runner_up = best.runner_up.key if best.runner_up else ""
        row.tried, row.failed = best.tried, dict(best.failed)
        row.version, row.served = version, best.served
        session.add(row)
        session.flush()


def read(session: Session, query: Select[BestRow]) -> list[Best]:
    """The bests that a query selects, in its order."""
    return [codec.best(row) for row in session.scalars(query.options(*WHOLE))]


def readable(row: BestRow) -> Best | StoreError:
    """A best, or the error if this version cannot read it."""
    try:
        return codec.best(row)
    except StoreError as error:
        return error


def winners_near(session: Session, problem: Problem, device: str) -> tuple[Config, ...]:
    """Own configs that won or came second on similar problems of a device model, most similar first.

    Similar problems differ in their extents alone and are near enough (`kinship.reaches`). Configs that this version
    does not know are skipped.
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
        .where(ProblemRow.key.like(f"{head}%{tail}"), ProblemRow.key != problem.key)
    )
    for column, extent in zip((ProblemRow.m, ProblemRow.n, ProblemRow.k), problem.extents, strict=True):
        query = query.where(column.between(extent // REACH, extent * REACH))
    found = [(codec.problem_of(key), won, second) for key, won, second in session.execute(query.limit(_MOST_LOOKED_AT))]
    found.sort(key=lambda near: (octaves(problem, near[0]), near[0].key))
    keys = dict.fromkeys(key for _, won, second in found[:_MOST_NEAR] for key in (won, second) if key)
    configs = [_known_config(key) for key in keys]
    return tuple(config for config in configs if config and family_named(config.family).own)


def _known_config(key: str) -> Config | None:
    try:
        return codec.config_of(key)
    except StoreError:
        return None
