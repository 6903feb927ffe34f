"""Parquet files as columns, read with whichever reader is installed. `workers.recording` writes them, with PyArrow.

arro3 takes a fifth of PyArrow's disk space and start time, so that a machine that only replays needs nothing else;
recording and training machines have PyArrow (the extra `record`).
"""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

_MAGIC: Final = b"PAR1"
#: What stands before a file's digest.
_SEAL: Final = b"gemmtune.sha256:"
_SEAL_BYTES: Final = len(_SEAL) + 32


class NotParquet(ValueError):
    """Bytes that are no whole Parquet file."""


@dataclass(frozen=True, slots=True)
class ParquetTable:
    """One file's content.

    Attributes:
        names: of all columns.
        columns: values by name, of the columns that were read, all of one length.
        metadata: the schema's, by key.
    """

    names: Sequence[str]
    columns: Mapping[str, list[Any]]
    metadata: Mapping[bytes, bytes]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One dict a row."""
        return [dict(zip(self.columns, values, strict=True)) for values in zip(*self.columns.values(), strict=True)]


def sealed(data: bytes) -> bytes:
    """A file's bytes with their digest in front of the footer, where readers of Parquet look for nothing."""
    footer = _footer(data)
    return data[:footer] + _SEAL + sha256(data).digest() + data[footer:]


def read_parquet(data: bytes, only: Collection[str] | None) -> ParquetTable:
    """The table in a file's bytes.

    Args:
        only: columns to read, those of them that are there; None for all. Without any only the footer is parsed.

    Raises:
        NotParquet: they are none, or not all of one.
    """
    # The file ends with its footer, the footer's length and the magic; a truncated file does not.
    if len(data) < 12 or data[:4] != _MAGIC or data[-4:] != _MAGIC:
        raise NotParquet(f"{len(data):,} bytes that do not begin and end as Parquet does")
    if (footer := _footer(data)) < len(_MAGIC):
        raise NotParquet("its footer is longer than the file")
    body, seal = data[: footer - _SEAL_BYTES], data[footer - _SEAL_BYTES : footer]
    # A changed byte may be other measurements, and arro3 ends the process over some.
    if seal.startswith(_SEAL) and sha256(body + data[footer:]).digest() != seal[len(_SEAL) :]:
        raise NotParquet("its bytes are not those of its digest")
    try:
        from arro3.io import read_parquet as read
    except ImportError:
        return _with_pyarrow(data, only)
    try:
        opened = read(io.BytesIO(data))
        schema, wanted = opened.schema, _wanted(opened.schema.names, only)
        columns = _lists(opened.read_all(), wanted) if wanted else {}
    except BaseException as error:
        # A panic of the Rust library is no `Exception`; it can't be imported by name.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise NotParquet(str(error)) from error
    return ParquetTable(schema.names, columns, schema.metadata)


def _footer(data: bytes) -> int:
    """Where a file's footer begins."""
    return len(data) - 8 - int.from_bytes(data[-8:-4], "little")


def _with_pyarrow(data: bytes, only: Collection[str] | None) -> ParquetTable:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        opened = pq.ParquetFile(pa.BufferReader(data))
        schema, wanted = opened.schema_arrow, _wanted(opened.schema_arrow.names, only)
        columns = opened.read(wanted).to_pydict() if wanted else {}
    # Of values that are no text, and of moments beyond the year 9999, PyArrow raises Python's own errors.
    except (OSError, ValueError, OverflowError, pa.ArrowException) as error:
        raise NotParquet(str(error)) from error
    return ParquetTable(schema.names, columns, schema.metadata or {})


def _lists(table: Any, names: Sequence[str]) -> dict[str, list[Any]]:  # noqa: ANN401  (arro3 is untyped)
    return {name: table[name].to_pylist() for name in names}


def _wanted(names: Sequence[str], only: Collection[str] | None) -> list[str]:
    return [name for name in names if only is None or name in only]
