"""The table itself as JSON, with what the guard left to the library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tuner.tables.entries import canonical, content_of
from tuner.tables.exporters.guard import Guarded
from tuner.tables.exporters.wanted import Wanted

NAME: Final = "json"
MEDIA_TYPE: Final = "application/json"
WRITES: Final = "the table with its evidence, which gemmtune reads back"
#: The next step of a table without entries.
NO_ENTRY: Final = "no entry: the library is kept everywhere"


def files(table: Guarded, wanted: Wanted) -> Mapping[str, bytes]:
    """One file: the entries, and `null` for every problem whose library kernel is to be kept."""
    return {wanted.name: canonical(document(table)) + b"\n"}


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


def next_step(table: Guarded, wanted: Wanted) -> str:
    """How torch programs use the file."""
    if not table.entries:
        return NO_ENTRY
    return f"to use it in a torch program: gemmtune.torch.install({wanted.name!r})"
