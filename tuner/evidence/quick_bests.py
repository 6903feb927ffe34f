"""Bests of a SQLite file, read without SQLAlchemy: importing that takes longer than the rest of `gemmtune best`.

Only files of this version's schema are read. Whatever else happens is for the store, which migrates and explains.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import unquote

from space.problem import Problem
from tuner.errors import Quarantined, StoreError
from tuner.evidence import codec
from tuner.evidence.records import Best
from tuner.evidence.revisions import VERSION_TABLE, newest_revision
from workers.measurement import Policy

_VERSION: Final = f"SELECT version_num FROM {VERSION_TABLE}"
#: `bests.SELECTED`.
_SELECTED: Final = f"""
SELECT measurement.*, {", ".join(f"best.{name}" for name in codec.OF_BEST)}, problem.key AS problem_key,
       device.name AS device, device.kind AS device_kind, config.key AS config_key, provenance.content AS provenance,
       revoked.revocation_id
FROM best JOIN problem ON problem.id = best.problem_id JOIN device ON device.id = best.device_id
     JOIN measurement ON measurement.id = best.measurement_id JOIN config ON config.id = measurement.config_id
     JOIN provenance ON provenance.id = measurement.provenance_id
     LEFT JOIN revoked_measurement AS revoked ON revoked.measurement_id = measurement.id
WHERE device.name = :device AND """
_ONE: Final = "problem.key = :key AND CASE WHEN :policy IS NULL THEN best.served ELSE best.policy = :policy END"
_NEAR: Final = "problem.key LIKE :like AND problem.key <> :key AND (best.served OR best.policy = :policy)"
#: `refutations.wrong_for`.
_WRONG: Final = """
SELECT DISTINCT config.key
FROM measurement JOIN config ON config.id = measurement.config_id JOIN problem ON problem.id = measurement.problem_id
     JOIN device ON device.id = measurement.device_id
WHERE problem.key = :key AND device.name = :device AND measurement.outcome = 'wrong_result'
      AND measurement.id NOT IN (SELECT measurement_id FROM revoked_measurement)
"""
_ORDER: Final = " ORDER BY problem.key, device.kind"
_JSON: Final = ("samples_us", "verification", "clocks", "versus_first", "versus_best", "failed")


class QuickBests:
    """The bests of an open file, as they were when it was opened."""

    def __init__(self, url: str, connection: sqlite3.Connection) -> None:
        self._url, self._connection = url, connection

    @classmethod
    def open(cls, url: str) -> Self | None:
        """The bests at a SQLAlchemy URL; None if it is no SQLite file of this version's schema that can be read."""
        path = unquote(url.removeprefix("sqlite:///"))
        if not url.startswith("sqlite:///"):
            return None
        try:
            if not Path(path).is_file():
                return None
            connection = sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
        except (sqlite3.Error, OSError):
            return None
        try:
            connection.execute("BEGIN")
            found = connection.execute(_VERSION).fetchall()
        except sqlite3.Error:
            found = []
        if found != [(newest_revision(),)]:
            connection.close()
            return None
        connection.row_factory = sqlite3.Row
        return cls(url, connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def best(self, problem: Problem, device: str, policy: Policy | None = None) -> Best | None:
        return next(iter(self._bests(_ONE, device, policy, key=problem.key)), None)

    def neighbours(self, problem: Problem, device: str, policy: Policy | None = None) -> list[Best]:
        head, tail = problem.key_around_shape()
        near = self._bests(_NEAR, device, policy, StoreError, key=problem.key, like=f"{head}%{tail}")
        found = codec.preferred(near, policy)
        return sorted(found, key=lambda best: problem.distance(best.problem))

    def wrong(self, problem: Problem, device: str) -> frozenset[str]:
        with self._rows(_WRONG, {"key": problem.key, "device": device}) as rows:
            return frozenset(row["key"] for row in rows)

    def _bests(
        self, where: str, device: str, policy: Policy | None, without: type[StoreError] = Quarantined, **given: str
    ) -> list[Best]:
        asked = given | {"device": device, "policy": policy and policy.value}
        with self._rows(_SELECTED + where + _ORDER, asked) as rows:
            return codec.bests_of(map(_columns, rows), without)

    @contextmanager
    def _rows(self, query: str, asked: dict[str, str | None]) -> Iterator[sqlite3.Cursor]:
        try:
            with closing(self._connection.execute(query, asked)) as rows:
                yield rows
        except sqlite3.Error as error:
            from tuner.evidence.database import unusable

            raise unusable(self._url, error) from error


def _columns(row: sqlite3.Row) -> dict[str, Any]:
    """A row's columns, as SQLAlchemy gives them."""
    parsed = {name: None if row[name] is None else _parsed(row[name]) for name in _JSON}
    kept = {"taken_at": datetime.fromisoformat(row["taken_at"]), "served": bool(row["served"])}
    return dict(row) | parsed | kept


def _parsed(text: str | bytes) -> Any:  # noqa: ANN401  (a JSON value)
    try:
        return json.loads(text)
    except ValueError:
        # As `database` has it: SQLite stores any text.
        return None
