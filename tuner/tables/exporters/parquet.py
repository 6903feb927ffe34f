"""Parquet: the rows of the CSV with types."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Final

from space.errors import ConfigError
from tuner.tables.exporters.guard import Guarded
from tuner.tables.exporters.options import ExportOptions
from tuner.tables.exporters.rows import rows
from tuner.tables.problems import COLUMNS

NAME: Final = "parquet"
MEDIA_TYPE: Final = "application/vnd.apache.parquet"
WRITES: Final = "the rows of csv, typed"
OF_LIBRARY: Final = False
FOLDER: Final = False
_FLOATS: Final = frozenset({"time_us", "tflops", "gain", "gain_low", "gain_high"})


def writable(table: Guarded, options: ExportOptions) -> Guarded:
    """The whole table: the format has room for every entry."""
    return table


def files(table: Guarded, options: ExportOptions) -> Mapping[str, bytes]:
    """One file. The device and the least gain are its metadata.

    Raises:
        ConfigError: PyArrow is not installed.
    """
    try:
        import pyarrow as pa  # an extra, and a tenth of a second that other formats need not wait for
        from pyarrow import parquet
    except ImportError as error:
        raise ConfigError(f"parquet needs PyArrow ({error}): pip install 'gemmtune[record]', or use csv") from error

    found = list(rows(table))
    names = list(dict.fromkeys(name for row in found for name in row if name not in COLUMNS))
    columns = {}
    for name in [*names, *COLUMNS]:
        values = [row.get(name) for row in found]
        whole = any(isinstance(value, int) for value in values)
        kind = pa.float64() if name in _FLOATS else pa.int64() if whole else pa.string()
        columns[name] = pa.array(values, kind)
    metadata = {"device": table.device, "min_gain": f"{table.min_gain:g}"}
    out = io.BytesIO()
    parquet.write_table(pa.table(columns).replace_schema_metadata(metadata), out, compression="zstd")
    return {options.name: out.getvalue()}


def next_step(table: Guarded, options: ExportOptions) -> str:
    """Nothing: programs read it."""
    return ""
