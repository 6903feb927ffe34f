"""Recordings: written whole, read back exactly, refused when anything is off."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support import FACTS, FAMILY, PROBLEM, PROVENANCE, measured, record_problem
from workers.errors import RecordingError
from workers.recording import read_recording, write_recording

CONFIGS = [FAMILY.config({"tile_n": n}) for n in range(8, 129, 8)]


def test_a_recording_comes_back_as_it_was(tmp_path: Path) -> None:
    rows = [(measured(config, 10.0 + place), PROVENANCE) for place, config in enumerate(CONFIGS)]
    write_recording(tmp_path / "r.parquet", PROBLEM, FACTS, rows)
    recording = read_recording(tmp_path / "r.parquet")
    assert (recording.problem, recording.facts) == (PROBLEM, FACTS)
    assert [(m.config, m.outcome, m.verification, m.clocks) for m, _ in recording.measurements] == [
        (m.config, m.outcome, m.verification, m.clocks) for m, _ in rows
    ]
    assert [m.median_us for m, _ in recording.measurements] == pytest.approx([m.median_us for m, _ in rows], abs=1e-4)
    assert {by for _, by in recording.measurements} == {PROVENANCE}


def test_a_recording_is_never_overwritten(tmp_path: Path) -> None:
    path = record_problem(tmp_path, CONFIGS)
    before = path.read_bytes()
    with pytest.raises(RecordingError, match="never overwritten"):
        record_problem(tmp_path, CONFIGS[:3])
    assert path.read_bytes() == before


@pytest.mark.parametrize("keep", [0, 4, 100, 0.5, 0.99])
def test_a_truncated_recording_is_refused(tmp_path: Path, keep: float) -> None:
    path = record_problem(tmp_path, CONFIGS)
    data = path.read_bytes()
    path.write_bytes(data[: int(keep if keep > 1 else keep * len(data))])
    with pytest.raises(RecordingError, match=r"can't be read as Parquet"):
        read_recording(path)


def test_another_schema_is_refused_with_both_versions(tmp_path: Path) -> None:
    path = record_problem(tmp_path, CONFIGS)
    table = pq.read_table(path)
    meta = json.loads(table.schema.metadata[b"gemmtune"]) | {"schema": 99}
    pq.write_table(table.replace_schema_metadata({b"gemmtune": json.dumps(meta)}), path)
    with pytest.raises(RecordingError, match="has 99, this version reads schema 1"):
        read_recording(path)


def test_a_foreign_parquet_file_is_refused(tmp_path: Path) -> None:
    path = record_problem(tmp_path, CONFIGS)
    pq.write_table(pq.read_table(path).replace_schema_metadata({}), path)
    with pytest.raises(RecordingError, match="no gemmtune schema"):
        read_recording(path)


def test_a_row_that_is_no_measurement_is_refused(tmp_path: Path) -> None:
    path = record_problem(tmp_path, CONFIGS)
    table = pq.read_table(path)
    bad = table.set_column(table.column_names.index("config"), "config", [["tile_m=100"] * len(table)])
    pq.write_table(bad, path)
    with pytest.raises(RecordingError, match="no measurement"):
        read_recording(path)


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RecordingError, match="can't be written"):
        write_recording(tmp_path / "file" / "r.parquet", PROBLEM, FACTS, [])


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="can't be read"):
        read_recording(tmp_path / "nothing.parquet")
