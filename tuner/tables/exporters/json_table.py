"""The table itself as JSON, with what the guard left to the library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tuner.tables.entries import canonical, content_of
from tuner.tables.exporters.guard import Guarded
from tuner.tables.exporters.options import ExportOptions

NAME: Final = "json"
MEDIA_TYPE: Final = "application/json"
WRITES: Final = "the table with its evidence, which gemmtune reads back"
OF_LIBRARY: Final = False
FOLDER: Final = False
#: The next step of a table without entries.
NO_ENTRY: Final = "no entry: the library is kept everywhere"


def writable(table: Guarded, options: ExportOptions) -> Guarded:
    """The whole table: the format has room for every entry."""
    return table


def files(table: Guarded, options: ExportOptions) -> Mapping[str, bytes]:
    """One file: the entries, and `null` for every problem whose library kernel is to be kept."""
    return {options.name: canonical(document(table)) + b"\n"}


def document(table: Guarded) -> dict[str, object]:
    """The guarded table as a table document with a content hash of its own."""
    found: dict[str, object] = {name: value for name, value in table.document.items() if name != "content"}
    found |= {
        "entries": list(table.entries),
        "library": dict.fromkeys(table.library),
        "left_out": dict(table.left_out),
        "min_gain": table.min_gain,
    }
    return found | {"content": content_of(found)}


def next_step(table: Guarded, options: ExportOptions) -> str:
    """How torch programs use the file."""
    if not table.entries:
        return NO_ENTRY
    return f"to use it in a torch program: gemmtune.torch.install({options.name!r})"
