"""Fills a store for load tests: real legal configs with made-up shapes and times; every row says so."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain
from typing import Any, Final, cast

from sqlalchemy import JSON, ColumnElement, Insert, Table, Text, func, insert, select, text, update
from sqlalchemy import cast as sql_cast

from space.config import Config
from space.enumerate import enumerate_space
from space.family import families_for, family_for
from space.kinds.gemm import DTYPES, Gemm
from space.plug import Family
from tuner.evidence.models import (
    BestRow,
    ConfigRow,
    CounterRow,
    DeviceRow,
    MeasurementRow,
    ProblemRow,
    ProvenanceRow,
    StudyRow,
)
from tuner.evidence.postgresql import allow_silence
from tuner.evidence.records import Best, StudyKey
from tuner.evidence.store import Store
from tuner.evidence.studies import problem_columns
from workers.kernels.source import sources_digest
from workers.measurement import Clocks, Measurement, Outcome, Policy, Provenance, Verification

DEVICE: Final = "NVIDIA H200"
_PROVENANCE: Final = Provenance(DEVICE, "GPU-made-up", "580.0", "13.0", "0" * 64, "130000", "0.1.0", 0)
#: Of one dtype and layout; those of the first problem are the first that are stored.
CONFIGS: Final = 2_000
_SAMPLES: Final = 30
_AT_ONCE: Final = 5_000
_MADE: Final = 50_000
_WHEN: Final = datetime(2026, 1, 1, tzinfo=UTC)


def fill(store: Store, count: int) -> list[Gemm]:
    """Puts `count` bests of different problems into an empty store, and returns the problems.

    The first `_MADE` are made one by one; the others are copies by the database, of larger batches.
    """
    dice = random.Random(0)
    made = min(count, _MADE)
    problems = list(_problems(dice, made))
    configs = {kind: _configs(dice, kind) for kind in dict.fromkeys(map(_kind, problems))}
    numbers = {config: number for number, config in enumerate(dict.fromkeys(chain(*configs.values())), 1)}
    with store.transaction(writes=True) as session:
        dialect = session.get_bind().dialect.name
        # Copies of a large table take their time.
        allow_silence(session.connection(), None)
        if dialect == "postgresql":
            session.execute(text("SET LOCAL statement_timeout = 0"))
        device = session.scalars(insert(DeviceRow).returning(DeviceRow.id), {"name": DEVICE, "kind": "cuda"}).one()
        came_from: dict[str, int] = {}
        for kernels in map(_kernels, problems):
            if kernels not in came_from:
                whole = replace(_PROVENANCE, kernel_source_digest=kernels)
                content = {"digest": whole.digest, "content": asdict(whole)}
                came_from[kernels] = session.scalars(insert(ProvenanceRow).returning(ProvenanceRow.id), content).one()
        session.execute(insert(ConfigRow), [
            {"id": number, "key": config.key, "family": config.family, "knobs": config.knobs}
            for config, number in numbers.items()
        ])  # fmt: skip
        for first in range(0, made, _AT_ONCE):
            part = list(enumerate(problems[first : first + _AT_ONCE], first + 1))
            session.execute(insert(ProblemRow), [
                {"id": place} | problem_columns(problem) for place, problem in part
            ])  # fmt: skip
            session.execute(insert(StudyRow), [_study(place, device) for place, _ in part])
            session.execute(insert(MeasurementRow), [
                _measurement(dice, place, problem, device, came_from[_kernels(problem)]) |
                {"config_id": numbers[dice.choice(configs[_kind(problem)])]}
                for place, problem in part
            ])  # fmt: skip
            session.execute(insert(BestRow), [
                _best(dice, place, device, configs[_kind(problem)]) for place, problem in part
            ])  # fmt: skip
        for first in range(made, count, _AT_ONCE):
            ahead, copies = first // made * made, min(_AT_ONCE, count - first)
            for row in (ProblemRow, StudyRow, MeasurementRow, BestRow):
                table = cast(Table, row.__table__)
                session.execute(_copies(table, first - ahead, copies, ahead, dialect))
            problems += [replace(problem, batch=ahead // made + 1) for problem in problems[first - ahead :][:copies]]
        session.execute(update(CounterRow).where(CounterRow.name.in_(("best", "measurement"))).values(value=count))
    _settle(store)
    return problems


def _settle(store: Store) -> None:
    """Does what PostgreSQL begins by itself within a minute, and would do beside what is measured."""
    if store.embedded:
        return
    with store.transaction() as session:
        engine = session.connection().engine
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        allow_silence(connection, None)
        connection.execute(text("SET statement_timeout = 0"))
        connection.execute(text("VACUUM (ANALYZE)"))
        # The connection goes back to its pool.
        connection.execute(text("RESET statement_timeout"))


def _kernels(problem: Gemm) -> str:
    """Digest of the kernels that compete for a problem: with another one its best would be stale."""
    return _digest(families_for("sm_90a", problem))


@lru_cache
def _digest(families: tuple[Family, ...]) -> str:
    return sources_digest(families)


def _copies(table: Table, first: int, count: int, ahead: int, dialect: str) -> Insert:
    """Copies `count` rows after number `first`; what depends on the problem's place or its batch is changed.

    Args:
        ahead: how much larger the numbers of the copies are, a multiple of `_MADE`.
    """
    batch = ahead // _MADE + 1
    changed: dict[str, ColumnElement[Any]] = {
        column.name: column + ahead
        for column in table.columns if column.name in ("id", "problem_id", "study_id", "measurement_id", "version")
    }  # fmt: skip
    if table.name == "problem":
        fields = func.replace(sql_cast(table.c.fields, Text), '"batch": 1', f'"batch": {batch}')
        # SQLite keeps JSON as text, and would take a cast for one to a number.
        changed["fields"] = sql_cast(fields, JSON) if dialect == "postgresql" else fields
        changed["key"] = func.replace(table.c.key, ":b1:", f":b{batch}:")
    selected = select(*(changed.get(column.name, column) for column in table.columns))
    selected = selected.where(table.c.id > first, table.c.id <= first + count)
    return insert(table).from_select([column.name for column in table.columns], selected)


def put_best(store: Store, problem: Gemm) -> None:
    """Adds a best as a study does: its measurement is recorded first."""
    config = family_for("sm_90a").config({})
    samples = (10.0,) * _SAMPLES
    check = Verification(problem.m * problem.n, 0, 0.5, "made up")
    made = Measurement(problem.key, config, "final", Policy.ROUNDS, Outcome.CORRECT, samples, verification=check)
    key = StudyKey(problem, DEVICE, "cuda", Policy.ROUNDS, config.family, "made up")
    provenance = replace(_PROVENANCE, kernel_source_digest=_kernels(problem))
    (stored,) = store.record_many(store.begin_study(key).id, [made], provenance)
    store.set_bests([Best(problem, DEVICE, "cuda", stored, None, None, None, 1, {})])


def _problems(dice: random.Random, count: int) -> Iterator[Gemm]:
    seen: set[str] = set()
    family = family_for("sm_90a")
    while len(seen) < count:
        m = 2 ** dice.randint(0, 13) if dice.random() < 0.5 else dice.randint(1, 16_384)
        n, k = 64 * dice.randint(1, 512), 64 * dice.randint(1, 512)
        problem = Gemm.of(m, n, k, dice.choice(list(DTYPES)), dice.choice(("nt", "nn", "tn")))
        # The configs are this family's.
        if problem.key not in seen and family.takes(problem):
            seen.add(problem.key)
            yield problem


def _kind(problem: Gemm) -> Gemm:
    """The problem that stands for all of its dtypes and layout: what is worth trying for it is legal for each."""
    return problem.resized(4096, 4096, 4096)


def _configs(dice: random.Random, kind: Gemm) -> list[Config]:
    family = family_for("sm_90a")
    found = enumerate_space(family, kind)
    rows = dice.sample(range(len(found)), min(CONFIGS, len(found)))
    return [family.config_at(found.columns, row) for row in rows]


def _study(place: int, device: int) -> dict[str, Any]:
    return {
        "id": place, "problem_id": place, "device_id": device, "policy": Policy.ROUNDS.value,
        "family": "sm90_wgmma", "source": "made up", "generation": 0, "status": "finished",
        "stopped_because": "made up for a load test", "created_at": _WHEN,
    }  # fmt: skip


def _measurement(dice: random.Random, place: int, problem: Gemm, device: int, provenance: int) -> dict[str, Any]:
    middle = problem.flops / 5e8 + 2.2
    samples = [round(middle * dice.uniform(0.99, 1.01), 4) for _ in range(_SAMPLES)]
    check = Verification(problem.m * problem.n, 0, dice.random(), "made up")
    clocks = Clocks(dice.randint(1200, 1980), 3201, round(dice.uniform(300, 700), 1), dice.randint(30, 70))
    return {
        "id": place, "study_id": place, "problem_id": place, "device_id": device,
        "provenance_id": provenance, "stage": "final", "series": 1,
        "policy": Policy.ROUNDS.value, "outcome": "correct", "median_us": sorted(samples)[_SAMPLES // 2],
        "samples_us": samples, "detail": "", "verification": asdict(check),
        "clocks": asdict(replace(clocks, throttle_reasons=("sw_power_cap",))),
        "build_digest": f"{dice.getrandbits(256):064x}", "note": "made up for a load test", "taken_at": _WHEN,
    }  # fmt: skip


def _best(dice: random.Random, place: int, device: int, configs: list[Config]) -> dict[str, Any]:
    ratio = round(dice.uniform(0.97, 1.3), 6)
    versus = {"value": ratio, "low": ratio - 0.004, "high": ratio + 0.004, "paired": True}
    return {
        "id": place, "problem_id": place, "device_id": device, "policy": Policy.ROUNDS.value,
        "measurement_id": place, "outcome": "correct", "versus_first": versus, "versus_best": versus,
        "runner_up": dice.choice(configs).key, "tried": 96, "failed": {"compile": 3}, "version": place,
    }  # fmt: skip
