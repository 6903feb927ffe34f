"""Stores for the pages: many bests, and one problem with many measurements. Every row says that it is made up."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sqlalchemy import text

from benchmarks.service_table import fill
from space.kinds.gemm import Gemm
from tuner.evidence.store import Store

#: Measurements of one study: as many as the made-up bests have configs.
_STUDY: Final = 2_000
_COPIED: Final = (
    "device_id, provenance_id, series, policy, outcome, samples_us, detail, verification, clocks, build_digest, note, "
    "taken_at"
)


def filled(path: Path, bests: int, measurements: int) -> tuple[Store, list[Gemm]]:
    """A store with `bests` problems, the first of which has `measurements`, and the problems."""
    store = Store.open(f"sqlite:///{path}")
    problems = fill(store, bests)
    with store.transaction(writes=True) as session:
        for number in range(measurements // _STUDY):
            study = bests + 1 + number
            session.execute(text(
                "INSERT INTO study (id, problem_id, device_id, policy, family, source, generation, status, "
                "stopped_because, created_at) SELECT :study, problem_id, device_id, policy, family, source, :number, "
                "status, stopped_because, created_at FROM study WHERE id = 1"
            ), {"study": study, "number": number + 1})  # fmt: skip
            session.execute(text(
                f"INSERT INTO measurement (id, study_id, problem_id, config_id, stage, median_us, {_COPIED}) "
                f"SELECT :first + id, :study, 1, id, 'screen', 200 + 100.0 * ((id * 7919 + :study) % 997) / 997, "
                f"{_COPIED} FROM measurement WHERE id <= :count"
            ), {"first": bests + number * _STUDY, "study": study, "count": _STUDY})  # fmt: skip
    return store, problems
