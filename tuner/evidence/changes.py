"""Changes: counters that writers increment and readers follow.

A writer increments the counter in the transaction of its change. The counter's row stays locked until that transaction
ends, so numbers become visible in order: a reader that has seen 7 never meets a 6 later. A maximum over rows cannot
guarantee that.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Final, Literal, get_args

from sqlalchemy import Connection, PoolProxiedConnection, delete, insert, select, update
from sqlalchemy.dialects import sqlite
from sqlalchemy.orm import Session

from tuner.errors import StoreError
from tuner.evidence.models import CounterRow

Counter = Literal["best", "measurement", "token"]
#: Not a counter, but a number that each restore draws: counters of another store may be as high as before.
RESTORED: Final = "restored"

#: Built once: it runs several times a second, and building it takes longer.
_READ: Final = select(CounterRow.name, CounterRow.value).where(
    CounterRow.name.in_((*get_args(Counter), RESTORED))
)
_READ_EMBEDDED: Final = str(_READ.compile(dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True}))


def count(session: Session, name: Counter) -> int:
    """Increments a counter; returns the number of this transaction's change.

    Raises:
        StoreError: the counter's row is missing.
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


def lock(session: Session, name: Counter) -> None:
    """Waits for every other writer of a counter, which then waits for this transaction."""
    session.scalar(select(CounterRow.value).where(CounterRow.name == name).with_for_update())


def mark_restored(connection: Connection) -> None:
    """Tells a restored store from whatever a reader followed before."""
    connection.execute(delete(CounterRow).where(CounterRow.name == RESTORED))
    connection.execute(insert(CounterRow).values(name=RESTORED, value=secrets.randbits(62)))


def replaced(before: Mapping[str, int], changes: Mapping[str, int]) -> bool:
    """Whether another store was restored since a reader read the counters; False if it never did."""
    if not before:
        return False
    fewer = any(changes[name] < before[name] for name in get_args(Counter))
    return fewer or changes.get(RESTORED) != before.get(RESTORED)


def version(changes: Mapping[str, int], name: Counter) -> tuple[int, int | None]:
    """A value that a counter's changes change, and the restore of another store."""
    return changes[name], changes.get(RESTORED)


def read(through: Session | Connection) -> dict[str, int]:
    """Every counter's value, by name, and of a store that was restored its number."""
    return {name: 0 for name in get_args(Counter)} | {name: value for name, value in through.execute(_READ)}


def missing(through: Connection) -> list[str]:
    """The counters that have no row: nothing that they count could be written."""
    return sorted(set(get_args(Counter)) - {name for name, _ in through.execute(_READ)})


def read_embedded(connection: PoolProxiedConnection) -> dict[str, int]:
    """`read` on SQLite, outside of a transaction."""
    cursor = connection.cursor()
    cursor.execute(_READ_EMBEDDED)
    return dict.fromkeys(get_args(Counter), 0) | dict(cursor.fetchall())
