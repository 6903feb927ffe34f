"""Recordings: measurements of one problem on one real device, as a Parquet file with their provenance.

One row a measurement. Facts of the device and provenance records stand in the file's metadata as JSON, so
that a file alone says what was measured, on what, and by what. Written whole or not at all. The columns are
described for readers in `docs/recordings.md`.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import os
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from space.errors import SpaceError
from space.family import family_named
from space.kind import DEFAULT_KIND, KINDS
from space.problem import Problem
from workers.errors import RecordingError, RecordingExists, make_room_or
from workers.measurement import (
    RECORDED_SCREENING,
    Clocks,
    DeviceFacts,
    Measurement,
    Outcome,
    Policy,
    Provenance,
    Verification,
    from_document,
    from_json,
    to_json,
)
from workers.parquet import NotParquet, ParquetTable, read_parquet, sealed

#: 2 added `taken_at`, 3 `product_joules`. Older files are read as if they were empty.
SCHEMA_VERSION: Final = 3
READABLE: Final = (1, 2, 3)
_META: Final = b"gemmtune"

_COLUMNS: Final = (
    "family", "config", "stage", "policy", "outcome", "median_us", "samples_us", "detail",
    # Fields of `Verification`, and of `Clocks`.
    "elements", "mismatches", "worst_ratio", "reference",
    "sm_mhz", "memory_mhz", "power_w", "temperature_c", "throttle_reasons",
    "build_digest", "note", "provenance", "taken_at", "product_joules",
)  # fmt: skip
_ADDED: Final = ("taken_at", "product_joules")

# Pydantic builds a validator of a type in a millisecond; a thousand files are read with one.
_PROVENANCES: Final = TypeAdapter(list[Provenance])
_MOMENTS: Final = TypeAdapter(tuple[datetime | None, ...])

Recorded = tuple[Measurement, Provenance]


@dataclass(frozen=True)
class Recording:
    """One file's content.

    Attributes:
        problem: the one problem that it is about.
        facts: of the device it was taken on.
        measurements: in the order in which they were taken, each with its provenance.
        digest: of the file's bytes.
        taken_at: when each was done; None where the file does not say.
    """

    problem: Problem
    facts: DeviceFacts
    measurements: tuple[Recorded, ...]
    digest: str
    taken_at: tuple[datetime | None, ...]

    @property
    def screens_under(self) -> Policy:
        """The policy of its screenings; that of old recordings where it has none."""
        return next((one.policy for one, _ in self.measurements if one.stage == "screen"), RECORDED_SCREENING)

    def of_policy(self, policy: Policy) -> list[Measurement]:
        """What was measured under one policy."""
        return [one for one, _ in self.measurements if one.policy is policy]


@dataclass(frozen=True)
class Outline:
    """What a file says of itself.

    Attributes:
        provenances: of its measurements.
        rows: one dict a measurement, of the columns that were asked for, as they are in the file.
    """

    problem: Problem
    facts: DeviceFacts
    provenances: tuple[Provenance, ...]
    rows: list[dict[str, Any]]


def file_name(problem: Problem) -> str:
    """The file of a problem: `bf16_nt_4096x4096x4096.parquet`, followed by batch and epilogue where there are any."""
    return problem.title.replace(" ×", " b").translate(str.maketrans(" ,+", "_--")) + ".parquet"


def check_folder(folder: Path, device: str) -> None:
    """Refuses a folder that has recordings of another device: with those of two, neither could be replayed.

    Raises:
        RecordingError: it has some, or the first can't be read.
    """
    for path in sorted(folder.glob("*.parquet"))[:1]:
        if (other := read_outline(path).facts.name) != device:
            raise RecordingError(f"{folder} has recordings of {other}, not of {device}: give each device a folder")


def check_writable(folder: Path) -> None:
    """Checks that recordings can be written to a folder, and creates it.

    Raises:
        RecordingError: they can't, or PyArrow is missing.
    """
    _pyarrow(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise _refused(folder, error) from error


def write_recording(
    path: Path,
    problem: Problem,
    facts: DeviceFacts,
    measurements: Sequence[Recorded],
    taken_at: Sequence[datetime | None] = (),
) -> None:
    """Writes one recording, whole or not at all.

    Args:
        taken_at: when each measurement was done; may be left out.

    Raises:
        RecordingExists: a file is there already; a recording is never overwritten.
        RecordingError: the disk refuses, or PyArrow is missing.
    """
    provenances = list(dict.fromkeys(provenance for _, provenance in measurements))
    meta = {
        "schema": SCHEMA_VERSION,
        "kind": problem.kind,
        "problem": problem.key,
        "facts": json.loads(to_json(facts)),
        "provenance": [json.loads(to_json(provenance)) for provenance in provenances],
    }
    moments = list(taken_at) or [None] * len(measurements)
    rows = [
        _row(measurement) | {"provenance": provenances.index(by), "taken_at": moment}
        for (measurement, by), moment in zip(measurements, moments, strict=True)
    ]
    pa = _pyarrow(path)
    table = pa.Table.from_pylist(rows, schema=_schema().with_metadata({_META: json.dumps(meta, sort_keys=True)}))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _put(path, table)
    except OSError as error:
        raise _refused(path, error) from error


def _refused(path: Path, error: OSError) -> RecordingError:
    return RecordingError(f"{path} can't be written ({error.strerror}): {make_room_or('choose another folder', error)}")


def _pyarrow(path: Path) -> Any:  # noqa: ANN401  (PyArrow is untyped)
    """PyArrow, to write a path with.

    Raises:
        RecordingError: it is missing.
    """
    try:
        import pyarrow
    except ImportError as error:
        fix = "install PyArrow, the extra `record`: pip install 'gemmtune[record]'"
        raise RecordingError(f"{path} can't be written without PyArrow: {fix}") from error
    return pyarrow


def _schema() -> Any:  # noqa: ANN401  (PyArrow is untyped)
    """PyArrow's schema of a recording."""
    import pyarrow as pa

    types = {
        "median_us": pa.float64(), "samples_us": pa.list_(pa.float64()), "elements": pa.int64(),
        "mismatches": pa.int64(), "worst_ratio": pa.float64(), "sm_mhz": pa.int32(), "memory_mhz": pa.int32(),
        "power_w": pa.float64(), "temperature_c": pa.int32(), "throttle_reasons": pa.list_(pa.string()),
        "provenance": pa.int32(), "taken_at": pa.timestamp("us", tz="UTC"), "product_joules": pa.float64(),
    }  # fmt: skip
    return pa.schema([(name, types.get(name, pa.string())) for name in _COLUMNS])


def _put(path: Path, table: Any) -> None:  # noqa: ANN401  (PyArrow is untyped)
    """Writes the table as a new file, atomically.

    Raises:
        OSError: it can't be written.
        RecordingExists: there is such a file already.
    """
    taken = RecordingExists(f"{path} exists: a recording is never overwritten; move it away or record elsewhere")
    if path.exists():
        raise taken
    handle, partial = tempfile.mkstemp(suffix=".partial", dir=path.parent)
    os.close(handle)
    try:
        from pyarrow import parquet

        written = io.BytesIO()
        parquet.write_table(table, written, compression="zstd", compression_level=9)
        Path(partial).write_bytes(sealed(written.getvalue()))
        os.chmod(partial, 0o644)
        # Unlike a rename, a link does not replace a file that has appeared meanwhile.
        os.link(partial, path)
    except FileExistsError:
        raise taken from None
    finally:
        with contextlib.suppress(OSError):
            os.unlink(partial)


def read_recording(path: Path) -> Recording:
    """Reads one recording.

    Raises:
        RecordingError: not Parquet, truncated, of another schema, without rows, or with an invalid one.
    """
    data = _bytes_of(path)
    about = _outline(path, data, None)
    try:
        elements = about.problem.output_elements
        measurements = tuple(
            (_measurement(about.problem, row, elements), _provenance(about, row["provenance"])) for row in about.rows
        )
        moments = _MOMENTS.validate_python([row.get("taken_at") for row in about.rows])
    except (KeyError, IndexError, TypeError, ValueError, ValidationError, SpaceError) as error:
        raise _no_measurement(path, error) from error
    if not measurements:
        raise RecordingError(f"{path} holds no measurement: fetch it again or record again")
    return Recording(about.problem, about.facts, measurements, hashlib.sha256(data).hexdigest(), moments)


def read_outline(path: Path, columns: Collection[str] = ()) -> Outline:
    """Reads what one recording says of itself, and a few columns: a fraction of the time that its measurements take.

    Raises:
        RecordingError: not Parquet, truncated, or of another schema.
    """
    return _outline(path, _bytes_of(path), columns)


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _not_parquet(path, error) from error


def _outline(path: Path, data: bytes, columns: Collection[str] | None) -> Outline:
    try:
        table = read_parquet(data, columns)
    except NotParquet as error:
        raise _not_parquet(path, error) from error
    meta = _meta(path, table)
    if missing := [name for name in _COLUMNS if name not in (*table.names, *_ADDED)]:
        raise RecordingError(f"{path} lacks the columns {', '.join(missing)}: fetch it again or record again")
    # Files from before there were kinds name none: each is of a GEMM.
    if (kind := str(meta.get("kind", DEFAULT_KIND))) not in KINDS:
        raise RecordingError(
            f"{path} has problem kind {kind[:80]!r}, this version knows {', '.join(KINDS)}: upgrade gemmtune"
        )
    try:
        problem = KINDS[kind].from_key(meta["problem"])
        facts = from_json(DeviceFacts, json.dumps(meta["facts"]))
        # A driver may say nothing of a virtual device's caches.
        if facts.sm_count < 1 or facts.l2_bytes < 0:
            raise ValueError(f"no device has {facts.sm_count:,} multiprocessors and {facts.l2_bytes:,} B of L2")
        return Outline(problem, facts, tuple(_PROVENANCES.validate_python(meta["provenance"])), table.rows)
    except (KeyError, TypeError, ValueError, ValidationError, SpaceError) as error:
        raise _no_measurement(path, error) from error


def _not_parquet(path: Path, error: Exception) -> RecordingError:
    return RecordingError(f"{path} can't be read as Parquet ({_first_line(error)}): fetch it again")


def _no_measurement(path: Path, error: Exception) -> RecordingError:
    return RecordingError(f"{path} holds a row that is not a measurement ({_first_line(error)}): fetch it again")


def _meta(path: Path, table: ParquetTable) -> dict[str, Any]:
    try:
        meta = json.loads(table.metadata.get(_META, b"{}"))
        found = meta.get("schema", "no gemmtune schema")
    except (ValueError, AttributeError, RecursionError) as error:
        raise RecordingError(f"{path} has metadata that is no JSON ({_first_line(error)}): fetch it again") from error
    if found not in READABLE:
        raise RecordingError(
            f"{path} has {found}, this version reads schema {READABLE[0]} to {READABLE[-1]}: record again or upgrade"
        )
    return dict(meta)


def _row(measurement: Measurement) -> dict[str, Any]:
    """The columns of a measurement; those of what it does not have stay empty."""
    row = {"family": measurement.config.family, "config": measurement.config.knobs_text} | measurement.columns()
    row["samples_us"] = [round(sample, 4) for sample in measurement.samples_us]
    return row | _fields_of(measurement.verification) | _fields_of(measurement.clocks)


def _fields_of(part: Verification | Clocks | None) -> dict[str, Any]:
    return asdict(part) if part else {}


def _provenance(about: Outline, number: int) -> Provenance:
    if not 0 <= number < len(about.provenances):
        raise ValueError(f"provenance {number} is none of the {len(about.provenances)} that it has")
    return about.provenances[number]


def _measurement(problem: Problem, row: dict[str, Any], elements: int) -> Measurement:
    """The measurement of a row.

    Args:
        elements: of the problem's output, all of which a correct result was compared in.
    """
    config = family_named(row["family"]).parse(str(row["config"]))
    one = from_document(Measurement, {
        **row, "problem_key": problem.key, "config": config,
        "verification": row if row["elements"] is not None else None,
        "clocks": row | {"throttle_reasons": row["throttle_reasons"] or ()} if row["sm_mhz"] is not None else None,
    })  # fmt: skip
    if not all(0 < sample < math.inf for sample in one.samples_us):
        raise ValueError(f"{config.key} has a sample that is no time: {one.samples_us}")
    check = one.verification
    # Also true for NaN.
    if one.outcome is Outcome.CORRECT and check and (check.elements != elements or not check.worst_ratio <= 1):
        raise ValueError(f"{config.key} can't be correct: {check.elements:,} of {elements:,} elements were compared, "
                         f"the worst {check.worst_ratio:g} of its bound")  # fmt: skip
    return one


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return (str(error) or type(error).__name__).splitlines()[0]
