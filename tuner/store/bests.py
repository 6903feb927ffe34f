"""Bests in a session: replaced as a whole, read with their evidence."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from sqlalchemy import Select, select
from sqlalchemy.orm import Session, joinedload

from tuner.records import Best
from tuner.store import changes, codec, measurements
from tuner.store.models import BestRow
from tuner.store.studies import device_id, problem_id

#: What `codec.best` reads beside the row itself.
WHOLE: Final = (
    joinedload(BestRow.problem),
    joinedload(BestRow.device),
    *(joinedload(BestRow.measurement).options(option) for option in measurements.WHOLE),
)


def put(session: Session, best: Best) -> None:
    """Makes `best` the answer for its problem, device and policy.

    The database refuses it when its measurement is not there or not correct.
    """
    measured = best.winner.measurement
    place = {
        "problem_id": problem_id(session, best.problem),
        "device_id": device_id(session, best.device, best.device_kind),
        "policy": measured.policy.value,
    }
    # First, so that another writer of the same best has ended before its row is looked for.
    version = changes.count(session, "best")
    row = session.scalars(select(BestRow).filter_by(**place)).one_or_none() or BestRow(**place)
    row.measurement_id, row.outcome = best.winner.id, measured.outcome.value
    row.versus_first = asdict(best.versus_first) if best.versus_first else None
    row.versus_best = asdict(best.versus_best) if best.versus_best else None
    row.runner_up = best.runner_up.key if best.runner_up else ""
    row.tried, row.failed = best.tried, dict(best.failed)
    row.version = version
    session.add(row)


def read(session: Session, query: Select[BestRow]) -> list[Best]:
    """What a query selects, in its order."""
    return [codec.best(row) for row in session.scalars(query.options(*WHOLE))]
