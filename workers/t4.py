"""T4: a recording as auto-tuning researchers exchange them.

Source of the format: T4 1.0.0, `results-schema.json` and `metadata-schema.json` of Kernel Tuner. A result's
`configuration` has our knobs, and `family`; times are milliseconds, as that tool writes them.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Final

from space.problem import Problem
from workers.measurement import Measurement, Outcome, to_json
from workers.recording import Recording

SCHEMA_VERSION: Final = "1.0.0"

#: Our outcomes in the format's words. It has none for samples that disagree: such a run counts as failed.
_INVALIDITY: Final = {
    Outcome.CORRECT: "correct",
    Outcome.CONSTRAINTS: "constraints",
    Outcome.COMPILE: "compile",
    Outcome.LAUNCH: "runtime",
    Outcome.TIMEOUT: "timeout",
    Outcome.WRONG_RESULT: "correctness",
    Outcome.UNSTABLE: "runtime",
}


def results(recording: Recording) -> dict[str, Any]:
    """The screenings of one recording; the finals measure some of them again and are left out."""
    rows = zip(recording.measurements, recording.taken_at, strict=True)
    return {
        "schema_version": SCHEMA_VERSION,
        "results": [
            _result(recording.problem, measurement, moment)
            for (measurement, _), moment in rows
            if measurement.stage == "screen"
        ],
    }


def metadata(recording: Recording) -> dict[str, Any]:
    """The device and the software of the measurement."""
    by = recording.measurements[0][1]
    return {
        "schema_version": SCHEMA_VERSION,
        "metadata": {
            "hardware": {"hardware_description": [json.loads(to_json(recording.facts))]},
            "environment": {
                "device_query": {"gemmtune": json.loads(to_json(by))},
                "requirements": [f"gemmtune=={by.gemmtune}", f"nvidia-cuda-nvrtc=={by.nvrtc}"],
            },
        },
    }


def _result(problem: Problem, measurement: Measurement, moment: datetime | None) -> dict[str, Any]:
    correct = measurement.outcome is Outcome.CORRECT
    result: dict[str, Any] = {
        "configuration": {"family": measurement.config.family, **measurement.config.knobs},
        "times": {"runtimes": [_ms(sample) for sample in measurement.samples_us]},
        "invalidity": _INVALIDITY[measurement.outcome],
        "correctness": int(correct),
        "objectives": ["time"],
        "measurements": _measurements(problem, measurement) if correct else [],
    }
    return result if moment is None else {"timestamp": moment.isoformat(), **result}


def _measurements(problem: Problem, measurement: Measurement) -> list[dict[str, Any]]:
    found: list[tuple[str, float | str, str]] = [
        ("time", _ms(measurement.median_us), "ms"),
        ("TFLOP/s", round(problem.tflops(measurement.median_us), 3), "TFLOP/s"),
    ]
    if measurement.clocks:
        clocks = measurement.clocks
        found += [("sm_clock", clocks.sm_mhz, "MHz"), ("power", clocks.power_w, "W")]
        found += [("temperature", clocks.temperature_c, "°C")]
    if measurement.verification:
        found.append(("worst_error", measurement.verification.worst_ratio, "of its bound"))
    if measurement.note:
        found.append(("note", measurement.note, ""))
    return [{"name": name, "value": value, "unit": unit} for name, value, unit in found]


def _ms(us: float) -> float:
    return round(us / 1e3, 7)
