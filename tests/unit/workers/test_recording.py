"""Recordings: written atomically, read back exactly, and refused when damaged."""

from __future__ import annotations

import json
import math
import random
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from space.kinds.gemm import Gemm
from tests.support import FACTS, FAMILY, PROBLEM, PROVENANCE, measured, record_problem
from workers import recording
from workers.errors import RecordingError
from workers.recording import file_name, read_outline, read_recording, write_recording

#: What refuses a file by what it says of itself: to read it whole, or that alone.
READERS = pytest.mark.parametrize("read", [read_recording, read_outline])
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


def test_joules_come_back(tmp_path: Path) -> None:
    row = replace(measured(CONFIGS[0], stage="final"), product_joules=0.125)
    write_recording(tmp_path / "r.parquet", PROBLEM, FACTS, [(row, PROVENANCE)])
    ((back, _),) = read_recording(tmp_path / "r.parquet").measurements
    assert back.product_joules == 0.125


def test_a_recording_is_never_overwritten(tmp_path: Path) -> None:
    path = record_problem(tmp_path, CONFIGS)
    before = path.read_bytes()
    with pytest.raises(RecordingError, match="never overwritten"):
        record_problem(tmp_path, CONFIGS[:3])
    assert path.read_bytes() == before


def test_a_recording_that_appears_meanwhile_stays_and_nothing_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, write = tmp_path / "r.parquet", pq.write_table

    def raced(*given: object, **more: object) -> None:
        write(*given, **more)
        path.write_text("another process's")

    monkeypatch.setattr(pq, "write_table", raced)
    with pytest.raises(RecordingError, match="never overwritten"):
        write_recording(path, PROBLEM, FACTS, [(measured(CONFIGS[0]), PROVENANCE)])
    assert path.read_text() == "another process's"
    assert list(tmp_path.iterdir()) == [path]


@READERS
@pytest.mark.parametrize("keep", [0, 4, 100, 0.5, 0.99])
def test_a_truncated_recording_is_refused(read: Callable[[Path], object], tmp_path: Path, keep: float) -> None:
    path = record_problem(tmp_path, CONFIGS)
    data = path.read_bytes()
    path.write_bytes(data[: int(keep if keep > 1 else keep * len(data))])
    with pytest.raises(RecordingError, match=r"can't be read as Parquet"):
        read(path)


def test_a_recording_of_which_a_byte_has_changed_is_refused(tmp_path: Path) -> None:
    path = record_problem(tmp_path, CONFIGS[:3])
    data, whole = path.read_bytes(), read_recording(path)
    mark = data.index(b"gemmtune.sha256:")
    for place in {*range(0, len(data), 3), mark, mark + 15, mark + 16, mark + 47}:
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        if mark <= place < mark + 16:
            # Read as one from before there were digests.
            assert read_recording(path).measurements == whole.measurements
            continue
        with pytest.raises(RecordingError, match=f"{re.escape(str(path))} can't be read as Parquet"):
            read_recording(path)


@READERS
def test_another_schema_is_refused_with_both_versions(read: Callable[[Path], object], tmp_path: Path) -> None:
    path = record_problem(tmp_path, CONFIGS)
    table = pq.read_table(path)
    meta = json.loads(table.schema.metadata[b"gemmtune"]) | {"schema": 99}
    pq.write_table(table.replace_schema_metadata({b"gemmtune": json.dumps(meta)}), path)
    with pytest.raises(RecordingError, match="has 99, this version reads schema 1 to 3"):
        read(path)


@READERS
def test_a_column_that_is_missing_is_named(read: Callable[[Path], object], tmp_path: Path) -> None:
    path = record_problem(tmp_path, CONFIGS)
    pq.write_table(pq.read_table(path).drop_columns(["stage"]), path)
    with pytest.raises(RecordingError, match="lacks the columns stage"):
        read(path)


@pytest.mark.parametrize("arro3", [True, False])
def test_an_outline_parses_no_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arro3: bool) -> None:
    path = record_problem(tmp_path, CONFIGS)
    monkeypatch.setattr(recording, "_measurement", lambda *_: pytest.fail("a measurement was parsed"))
    if not arro3:
        monkeypatch.setitem(sys.modules, "arro3.io", None)
    about = read_outline(path)
    assert (about.problem, about.facts, len(about.provenances), about.rows) == (PROBLEM, FACTS, 1, [])
    assert read_outline(path, ("stage",)).rows[:: len(CONFIGS)] == [{"stage": "screen"}, {"stage": "final"}]


def test_a_recording_of_the_first_schema_is_read(tmp_path: Path) -> None:
    path = record_problem(tmp_path, CONFIGS)
    new, table = read_recording(path), pq.read_table(path)
    meta = json.loads(table.schema.metadata[b"gemmtune"]) | {"schema": 1}
    old = table.drop_columns(["taken_at"]).replace_schema_metadata({b"gemmtune": json.dumps(meta)})
    pq.write_table(old, path)
    assert read_recording(path).measurements == new.measurements
    assert set(read_recording(path).taken_at) == {None}


def test_moments_come_back(tmp_path: Path) -> None:
    moments = [datetime(2026, 1, 2, 3, 4, place, 567, UTC) for place in range(len(CONFIGS))]
    rows = [(measured(config), PROVENANCE) for config in CONFIGS]
    write_recording(tmp_path / "r.parquet", PROBLEM, FACTS, rows, moments)
    assert list(read_recording(tmp_path / "r.parquet").taken_at) == moments


def test_eight_hundred_candidates_with_their_samples_take_less_than_a_fortieth_of_forty_megabytes(
    tmp_path: Path,
) -> None:
    rng = random.Random(3)
    configs = [FAMILY.config({"tile_n": n, "stages": s, "raster_group": g, "cluster_m": c}) for n in range(8, 257, 8)
               for s in (2, 3, 4) for g in (1, 2, 4) for c in (1, 2, 4)]  # fmt: skip
    rows = []
    for one in map(measured, configs):
        samples = tuple(rng.uniform(10, 90) for _ in one.samples_us)
        rows.append((replace(one, samples_us=samples, build_digest=rng.randbytes(32).hex()), PROVENANCE))
    moments = [datetime.fromtimestamp(1.7e9 + place * 0.02, UTC) for place in range(len(rows))]
    write_recording(tmp_path / "r.parquet", PROBLEM, FACTS, rows, moments)
    assert len(rows) >= 800
    assert (tmp_path / "r.parquet").stat().st_size < 1_000_000


def test_every_problem_has_a_file_of_its_own() -> None:
    problems = [
        Gemm.of(64, 64, 64, dtype, layout, batch, epilogue)
        for dtype in ("bf16", "bf16,bf16,f32,f32")
        for layout in ("nt", "nn")
        for batch in (1, 2)
        for epilogue in ("none", "alpha+bias", "bias")
    ]
    names = {file_name(problem) for problem in problems}
    assert len(names) == len(problems)
    assert all(re.fullmatch(r"[\w-]+\.parquet", name) for name in names)


@READERS
@pytest.mark.parametrize("text", [b"{", b"[" * 100_000])
def test_metadata_that_is_no_json_is_refused(read: Callable[[Path], object], tmp_path: Path, text: bytes) -> None:
    path = record_problem(tmp_path, CONFIGS)
    pq.write_table(pq.read_table(path).replace_schema_metadata({b"gemmtune": text}), path)
    with pytest.raises(RecordingError, match="no JSON"):
        read(path)


@READERS
@pytest.mark.parametrize(("facts", "said"), [({"sm_count": 0}, "0 multiprocessors"), ({"l2_bytes": -1}, "-1 B of L2")])
def test_what_no_device_has_is_refused(
    read: Callable[[Path], object], tmp_path: Path, facts: dict[str, Any], said: str
) -> None:
    write_recording(tmp_path / "r.parquet", PROBLEM, replace(FACTS, **facts), [(measured(CONFIGS[0]), PROVENANCE)])
    with pytest.raises(RecordingError, match=said):
        read(tmp_path / "r.parquet")


@pytest.mark.parametrize(
    "column", [pa.array([b"\xff"]).view(pa.string()), pa.array([2**62], pa.timestamp("us", tz="UTC"))]
)
@pytest.mark.parametrize("arro3", [True, False])
def test_values_that_are_no_text_and_no_moment_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: pa.Array, arro3: bool
) -> None:
    path, name = record_problem(tmp_path, CONFIGS), "note" if pa.types.is_string(column.type) else "taken_at"
    table = pq.read_table(path)
    bad = pa.concat_arrays([column] * len(table))
    pq.write_table(table.set_column(table.column_names.index(name), name, bad), path)
    if not arro3:
        monkeypatch.setitem(sys.modules, "arro3.io", None)
    with pytest.raises(RecordingError, match="can't be read as Parquet"):
        read_recording(path)


@READERS
def test_a_foreign_parquet_file_is_refused(read: Callable[[Path], object], tmp_path: Path) -> None:
    path = record_problem(tmp_path, CONFIGS)
    pq.write_table(pq.read_table(path).replace_schema_metadata({}), path)
    with pytest.raises(RecordingError, match="no gemmtune schema"):
        read(path)


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("config", "tile_m=100", "tile_m"),
        ("config", None, "None"),
        ("stage", "warm", "stage: Input should be 'screen' or 'final'"),
        ("detail", None, "detail: Input should be a valid string"),
        ("sm_mhz", "fast", "clocks.sm_mhz: Input should be a valid integer"),
        ("worst_ratio", "small", "verification.worst_ratio: Input should be a valid number"),
        ("taken_at", "yesterday", "Input should be a valid datetime"),
        ("provenance", -1, "provenance -1 is none of the 1"),
        ("provenance", 1, "provenance 1 is none of the 1"),
        ("elements", 1, "can't be correct: 1 of"),
        *(("worst_ratio", ratio, f"the worst {ratio:g} of its bound") for ratio in (1.5, math.nan, math.inf)),
        *(("samples_us", [10.0, us], "a sample that is no time") for us in (0.0, -1.0, math.nan, math.inf)),
    ],
)
def test_a_row_that_is_no_measurement_is_refused(tmp_path: Path, column: str, value: object, said: str) -> None:
    path = record_problem(tmp_path, CONFIGS)
    table = pq.read_table(path)
    bad = table.set_column(table.column_names.index(column), column, [[value] * len(table)])
    pq.write_table(bad, path)
    with pytest.raises(RecordingError, match="not a measurement") as refused:
        read_recording(path)
    assert said in str(refused.value)


def test_a_recording_without_rows_is_refused(tmp_path: Path) -> None:
    path = record_problem(tmp_path, CONFIGS)
    pq.write_table(pq.read_table(path).slice(0, 0), path)
    with pytest.raises(RecordingError, match="holds no measurement"):
        read_recording(path)


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RecordingError, match="can't be written"):
        write_recording(tmp_path / "file" / "r.parquet", PROBLEM, FACTS, [])


@READERS
def test_a_missing_file_is_one_sentence(read: Callable[[Path], object], tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="can't be read"):
        read(tmp_path / "nothing.parquet")
