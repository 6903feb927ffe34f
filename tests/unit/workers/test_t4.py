"""T4: exports have all required members, with the schema's words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import FAMILY, record_problem
from workers import t4
from workers.measurement import Outcome
from workers.recording import Recording, read_recording

#: T4 1.0.0, results-schema.json: required members of a result, and the words of `invalidity`.
REQUIRED = {"configuration", "times", "invalidity", "correctness"}
INVALIDITIES = {"timeout", "compile", "runtime", "correctness", "constraints", "correct"}


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    return read_recording(record_problem(tmp_path, [FAMILY.config({"tile_n": n}) for n in range(8, 129, 8)]))


def test_each_screening_is_one_result_with_what_the_schema_requires(recording: Recording) -> None:
    document = json.loads(json.dumps(t4.results(recording)))
    assert document["schema_version"] == "1.0.0"
    screened = [measurement for measurement, _ in recording.measurements if measurement.stage == "screen"]
    assert len(document["results"]) == len(screened)
    for result, measurement in zip(document["results"], screened, strict=True):
        assert set(result) >= REQUIRED
        assert result["configuration"] == {"family": measurement.config.family, **measurement.config.knobs}
        assert result["invalidity"] in INVALIDITIES
        assert (result["invalidity"] == "correct") == bool(result["correctness"]) == bool(result["times"]["runtimes"])


def test_times_are_milliseconds(recording: Recording) -> None:
    result, (measurement, _) = t4.results(recording)["results"][0], recording.measurements[0]
    (time,) = [one for one in result["measurements"] if one["name"] == "time"]
    assert time == {"name": "time", "value": pytest.approx(measurement.median_us / 1e3), "unit": "ms"}


def test_a_failure_has_no_objective(recording: Recording) -> None:
    failed = [result for result in t4.results(recording)["results"] if result["invalidity"] == "timeout"]
    assert failed
    assert all(result["measurements"] == [] for result in failed)


def test_values_of_a_result_are_in_the_units_that_it_names(recording: Recording) -> None:
    result, (measurement, _) = t4.results(recording)["results"][0], recording.measurements[0]
    clocks, verification = measurement.clocks, measurement.verification
    assert clocks
    assert verification
    found = {one["name"]: (one["value"], one["unit"]) for one in result["measurements"]}
    assert found | {"time": (), "TFLOP/s": ()} == {
        "time": (), "TFLOP/s": (), "sm_clock": (clocks.sm_mhz, "MHz"), "power": (clocks.power_w, "W"),
        "temperature": (clocks.temperature_c, "°C"), "worst_error": (verification.worst_ratio, "of its bound"),
    }  # fmt: skip


def test_every_outcome_has_a_word() -> None:
    assert set(t4._INVALIDITY) == set(Outcome)
    assert [outcome for outcome, word in t4._INVALIDITY.items() if word == "correct"] == [Outcome.CORRECT]
    assert set(t4._INVALIDITY.values()) == INVALIDITIES


def test_metadata_says_where_and_with_what(recording: Recording) -> None:
    found = t4.metadata(recording)["metadata"]
    assert found["hardware"]["hardware_description"][0]["name"] == "NVIDIA H200"
    assert found["environment"]["device_query"]["gemmtune"]["driver"] == "580.1"
