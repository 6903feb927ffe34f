"""Bests that changed since a version that the reader has."""

from __future__ import annotations

from sqlalchemy import select

from tuner.errors import StoreError
from tuner.evidence import bests, codec
from tuner.evidence.models import BestRow
from tuner.evidence.records import Best
from tuner.evidence.store import Store


def bests_after(store: Store, version: int, limit: int) -> list[tuple[int, Best | StoreError]]:
    """Bests set after `version`, each with the number of its change, in order.

    A best that was replaced several times appears once, in its current state. One that this version of gemmtune cannot
    read appears as the error, and does not affect the others.
    """
    query = select(BestRow).where(BestRow.version > version).order_by(BestRow.version).limit(limit)
    with store.transaction() as session:
        return [(row.version, _read(row)) for row in session.scalars(query.options(*bests.WHOLE))]


def _read(row: BestRow) -> Best | StoreError:
    try:
        return codec.best(row)
    except StoreError as error:
        return error
