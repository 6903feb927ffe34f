"""Entries: one best as a document; tables, exports and HTTP answers share the format."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson

from space.config import Config
from space.family import config_named, family_named
from space.kind import problem_from_key
from tuner.evidence.records import Best, Ratio, StoredMeasurement
from workers.measurement import Clocks, Measurement, Provenance, Verification


def fields(value: Any) -> dict[str, Any]:  # noqa: ANN401  (any of our dataclasses)
    """The fields of a dataclass that holds plain values; `dataclasses.asdict` would copy each of them deeply."""
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def entry(best: Best) -> dict[str, Any]:
    """One best as a document: its config, its time and its evidence."""
    measurement, provenance = best.winner.measurement, best.winner.provenance
    return {
        "problem": best.problem.document(),
        "config": config_document(best.config),
        "runner_up": config_document(best.runner_up) if best.runner_up else None,
        "policy": measurement.policy.value,
        "device_kind": best.device_kind,
        "median_us": best.median_us,
        "tflops": best.tflops,
        "samples_us": list(measurement.samples_us),
        "stage": measurement.stage,
        "product_joules": measurement.product_joules,
        "note": measurement.note,
        "versus_cublaslt_first": fields(best.versus_first) if best.versus_first else None,
        "versus_cublaslt_best": fields(best.versus_best) if best.versus_best else None,
        "verification": fields(measurement.verification) if measurement.verification else None,
        "clocks": fields(measurement.clocks) if measurement.clocks else None,
        "build_digest": measurement.build_digest,
        "provenance": provenance.document,
        "measurement_id": best.winner.id,
        "study_id": best.winner.study_id,
        "taken_at": best.winner.taken_at.isoformat(),
        "tried": best.tried,
        "failed": best.failed,
    }


def best_of(device: str, content: dict[str, Any]) -> Best:
    """The inverse of `entry`; the content must be trusted, because it is not validated."""
    problem, check, clocks = content["problem"], content["verification"], content["clocks"]
    measurement = Measurement.of_columns(
        problem["key"], _config(content["config"]), content | {"outcome": "correct", "detail": ""},
        Verification(**check) if check else None,
        Clocks(**clocks | {"throttle_reasons": tuple(clocks["throttle_reasons"])}) if clocks else None,
    )  # fmt: skip
    winner = StoredMeasurement(
        content["measurement_id"], content["study_id"], device, content["device_kind"],
        datetime.fromisoformat(content["taken_at"]), Provenance(**content["provenance"]), measurement,
    )  # fmt: skip
    first, best = content["versus_cublaslt_first"], content["versus_cublaslt_best"]
    return Best(
        problem_from_key(problem["key"]), device, content["device_kind"], winner, Ratio(**first) if first else None,
        Ratio(**best) if best else None, _config(content["runner_up"]) if content["runner_up"] else None,
        content["tried"], dict(content["failed"]),
    )  # fmt: skip


def config_document(config: Config) -> dict[str, Any]:
    """A config: its family, its knobs and its key."""
    return {"family": config.family, "knobs": config.knobs, "key": config.key}


def _config(content: Mapping[str, Any]) -> Config:
    config = family_named(content["family"]).config(content["knobs"])
    # Knobs that are left out take defaults: of the library's algorithm, another one would be rebuilt.
    if config_named(key := content["key"]) != config:
        raise ValueError(f"its knobs make {config.key}, and its key is {key!r:.400}")
    return config


def content_of(document: Mapping[str, Any]) -> str:
    """The hash of everything in a table but its `content`."""
    known = {name: value for name, value in document.items() if name != "content"}
    return hashlib.sha256(canonical(known)).hexdigest()


def canonical(document: Mapping[str, Any] | str | None) -> bytes:
    """Canonical bytes of a document: UTF-8 JSON with sorted keys, no spaces and the shortest numbers."""
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)
