"""Exporters: a guarded table as the files of one format. Each module writes one format.

They are pure functions of one table document. A new format is a module with the members of `Exporter`, and one entry of
`EXPORTERS`: whoever exports asks these members, and never for the name of a format.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final, Protocol

from space.errors import ConfigError
from tuner.tables.exporters import bundle, csv_rows, json_table, parquet, tunableop
from tuner.tables.exporters.guard import Guarded
from tuner.tables.exporters.options import ExportOptions


class Exporter(Protocol):
    """A module that writes one format."""

    #: As `--format` and `?format=` spell it.
    NAME: str
    #: Of its only, or first, file.
    MEDIA_TYPE: str
    #: What it writes, for help texts.
    WRITES: str
    #: Whether its tables are of the library's kernels alone (`tuner.tables.library.library_table`).
    OF_LIBRARY: bool
    #: Whether its files make up a new folder, by their paths in it; if not, each is one by itself.
    FOLDER: bool

    def writable(self, table: Guarded, options: ExportOptions) -> Guarded:
        """The table with those entries alone that the format can write; the others are left to the library, with the
        reason. `files` leaves the same ones out of any other table, but can't report them.
        """

    def files(self, table: Guarded, options: ExportOptions) -> Mapping[str, bytes]:
        """The files by name.

        Raises:
            ConfigError: the format needs an option that is missing or malformed.
        """

    def next_step(self, table: Guarded, options: ExportOptions) -> str:
        """The user's next step with the files, as lines; may be empty."""


EXPORTERS: Final[dict[str, Exporter]] = {
    exporter.NAME: exporter for exporter in (json_table, csv_rows, parquet, tunableop, bundle)
}


def exporter_named(name: str) -> Exporter:
    """The exporter of a format.

    Raises:
        ConfigError: there is none of that name.
    """
    if name not in EXPORTERS:
        near = get_close_matches(name, EXPORTERS, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ConfigError(f"format {name[:80]!r} is unknown: {hint}use one of {', '.join(EXPORTERS)}")
    return EXPORTERS[name]
