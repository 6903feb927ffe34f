"""`gemmtune export`: a device's bests as a table."""

from __future__ import annotations

from typing import Annotated

import typer

from space.devices import DEFAULT_DEVICE
from space.errors import ConfigError
from tuner.cli.options import Db, DeviceName, Json, Out, open_store
from tuner.cli.output import say
from tuner.files import export_file
from tuner.tables.tables import table, table_bytes

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
    with open_store(db, create=False) as store:
        document = table(store, device)
    export_file(out, table_bytes(document))
    count = len(document["entries"])
    line = f"{out}: {count} {'best' if count == 1 else 'bests'} of {device}, content {document['content'][:12]}"
    say(line, {"out": str(out), "entries": count, "content": document["content"]}, as_json)
