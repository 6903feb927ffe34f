"""Tables: every best of one device as one document, with canonical bytes.

`gemmtune export` and `GET /v1/tables/{device}` give the same bytes for the same content; the content hash
covers everything but itself, and is the strong ETag over HTTP.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Final

from tuner.entries import canonical, entry
from tuner.errors import ExportError, UnknownDevice
from tuner.files import write_whole
from tuner.records import Best
from tuner.store.store import Store

SCHEMA: Final = "gemmtune.table/1"


def table(store: Store, device: str) -> dict[str, Any]:
    """The table of one device model; a GPU's own bests stand in for replayed ones of the same problem.

    Raises:
        UnknownDevice: there is no best of it.
    """
    chosen: dict[tuple[str, str], Best] = {}
    for best in store.bests(device):
        # `bests` orders by problem, then by kind: `cuda` comes before `recorded`.
        chosen.setdefault((best.problem.key, best.winner.measurement.policy.value), best)
    if not chosen:
        known = ", ".join(sorted({name for name, _ in store.devices()})) or "none yet"
        raise UnknownDevice(
            f"nothing was tuned on {device!r}: the store has bests of {known}; `gemmtune tune` makes some"
        )
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "device": device,
        "entries": [entry(chosen[key]) for key in sorted(chosen)],
    }
    return document | {"content": hashlib.sha256(canonical(document)).hexdigest()}


def table_bytes(document: dict[str, Any]) -> bytes:
    """The document's one form as bytes."""
    return canonical(document) + b"\n"


def write_table(path: Path, data: bytes) -> None:
    """Writes a table, whole or not at all.

    Raises:
        ExportError: the path can't be written.
    """
    try:
        write_whole(path, data)
    except OSError as error:
        raise ExportError(f"{path} can't be written ({error.strerror}): free space or choose another path") from error
