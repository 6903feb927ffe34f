"""`gemmtune export`: a device's bests as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from space.devices import DEFAULT_DEVICE
from space.errors import ConfigError
from tuner.cli.options import Db, DeviceName, Json, Out, open_store
from tuner.cli.output import console, emit
from tuner.tables.tables import table, table_bytes, write_table

FORMATS = ("json",)


def export(
    out: Out,
    format: Annotated[str, typer.Option("--format", help="json.")] = "json",
    device: DeviceName = DEFAULT_DEVICE,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Writes all bests of one device as a table, atomically."""
    if format not in FORMATS:
        raise ConfigError(f"format {format!r} is unknown: use one of {', '.join(FORMATS)}")
    with open_store(db) as store:
        document = table(store, device)
    write_table(Path(out), table_bytes(document))
    count = len(document["entries"])
    if as_json:
        emit({"out": str(out), "entries": count, "content": document["content"]})
    else:
        held = f"{count} {'best' if count == 1 else 'bests'}"
        console.print(f"{out}: {held} of {device}, content {document['content'][:12]}", markup=False)
