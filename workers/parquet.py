"""Parquet files as columns: read with whichever reader is installed, written with PyArrow.

arro3 takes a fifth of PyArrow's disk space and start time, so that a machine that only replays needs nothing else;
recording and training machines have PyArrow (the extra `record`).
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_MAGIC: Final = b"PAR1"


class NotParquet(ValueError):
    """Bytes that are no whole Parquet file."""


@dataclass(frozen=True, slots=True)
class ParquetTable:
    """One file's content.

    Attributes:
        columns: values by column name, all of one length.
        metadata: the schema's, by key.
    """

    columns: Mapping[str, list[Any]]
    metadata: Mapping[bytes, bytes]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One dict a row."""
        return [dict(zip(self.columns, values, strict=True)) for values in zip(*self.columns.values(), strict=True)]


def read_parquet(data: bytes) -> ParquetTable:
    """The table in a file's bytes.

    Raises:
        NotParquet: they are none, or not all of one.
    """
    # The file ends with its footer, the footer's length and the magic; a truncated file does not.
    if len(data) < 12 or data[:4] != _MAGIC or data[-4:] != _MAGIC:
        raise NotParquet(f"{len(data):,} bytes that do not begin and end as Parquet does")
    if int.from_bytes(data[-8:-4], "little") > len(data) - 12:
        raise NotParquet("its footer is longer than the file")
    try:
        from arro3.io import read_parquet as read
    except ImportError:
        return _with_pyarrow(data)
    try:
        table = read(io.BytesIO(data)).read_all()
        columns = {name: table[name].to_pylist() for name in table.column_names}
    except BaseException as error:
        # A panic of the Rust library is no `Exception`; it can't be imported by name.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise NotParquet(str(error)) from error
    return ParquetTable(columns, table.schema.metadata)


def _with_pyarrow(data: bytes) -> ParquetTable:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(pa.BufferReader(data))
    except (OSError, pa.ArrowException) as error:
        raise NotParquet(str(error)) from error
    return ParquetTable(table.to_pydict(), table.schema.metadata or {})
