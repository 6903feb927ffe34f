"""CSV: one row per problem, which `gemmtune shapes` reads back as a list."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Final

from tuner.tables.exporters.guard import Guarded
from tuner.tables.exporters.options import ExportOptions
from tuner.tables.exporters.rows import rows
from tuner.tables.problems import COLUMNS

NAME: Final = "csv"
MEDIA_TYPE: Final = "text/csv; charset=utf-8"
WRITES: Final = "one row per problem with its config, time and gain; no config where the library is to be kept"
OF_LIBRARY: Final = False
FOLDER: Final = False


def writable(table: Guarded, options: ExportOptions) -> Guarded:
    """The whole table: the format has room for every entry."""
    return table


def files(table: Guarded, options: ExportOptions) -> Mapping[str, bytes]:
    """One file."""
    found = list(rows(table))
    names = list(dict.fromkeys(name for row in found for name in row if name not in COLUMNS)) or ["m", "n", "k"]
    out = io.StringIO()
    writer = csv.DictWriter(out, [*names, *COLUMNS], lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(found)
    return {options.name: out.getvalue().encode()}


def next_step(table: Guarded, options: ExportOptions) -> str:
    """Nothing: people read it."""
    return ""
