"""Rows: a guarded table as plain columns, for formats without nesting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from space.kind import problem_from_key
from tuner.tables.exporters.guard import Guarded
from tuner.tables.problems import COLUMNS


def rows(table: Guarded) -> Iterator[dict[str, Any]]:
    """One row per problem: the entries, then those whose library kernel is to be kept, without a config."""
    for entry in table.entries:
        ratio, provenance = entry["versus_cublaslt_first"], entry["provenance"]
        yield _problem(entry["problem"]["key"]) | {
            "family": entry["config"]["family"], "config": _knobs_of(entry["config"]["key"]),
            "time_us": entry["median_us"], "tflops": entry["tflops"], "gain": ratio["value"], "gain_low": ratio["low"],
            "gain_high": ratio["high"], "policy": entry["policy"], "driver": provenance["driver"],
            "nvrtc": provenance["nvrtc"], "cublaslt": provenance["cublaslt"], "taken_at": entry["taken_at"],
        }  # fmt: skip
    for key in table.library:
        yield _problem(key) | dict.fromkeys(COLUMNS)


def _knobs_of(key: str) -> str:
    """`knob=value,…` of a config's key, whose family has a column of its own."""
    return key.partition(":")[2]


def _problem(key: str) -> dict[str, Any]:
    problem = problem_from_key(key)
    return {"kind": problem.kind} | problem.fields()
