"""Changes: counters that writers raise and readers follow.

A writer raises the counter in the transaction of its change. The counter's row stays locked until that
transaction ends, so on every database numbers become visible in the order in which they were given: a reader
that has seen 7 will never meet a 6 later. That is what a maximum over rows can't promise.
"""

from __future__ import annotations

from typing import Literal, get_args

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from tuner.errors import StoreError
from tuner.evidence.models import CounterRow

Counter = Literal["best", "measurement", "token"]


def count(session: Session, name: Counter) -> int:
    """Raises a counter and returns it: the number of the change that this transaction makes.

    Raises:
        StoreError: the counter's row is gone.
    """
    raised = session.scalar(
        update(CounterRow)
        .where(CounterRow.name == name)
        .values(value=CounterRow.value + 1)
        .returning(CounterRow.value)
        .execution_options(synchronize_session=False)
    )
    if raised is None:
        raise StoreError(f"the store lost its counter {name!r}: restore a backup")
    return int(raised)


def read(session: Session) -> dict[str, int]:
    """Every counter."""
    rows = session.execute(select(CounterRow.name, CounterRow.value))
    return {name: 0 for name in get_args(Counter)} | {name: value for name, value in rows}
