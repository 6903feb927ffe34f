"""Tables: every best of one device as one document, with canonical bytes.

`gemmtune export` and `GET /v1/tables/{device}` give the same bytes for the same content; the content hash
covers everything but itself, and is the strong ETag over HTTP.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from tuner.errors import ExportError, UnknownDevice
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
    return document | {"content": hashlib.sha256(_canonical(document)).hexdigest()}


def entry(best: Best) -> dict[str, Any]:
    """One best: what to run, how fast it is, and why to believe it."""
    measurement, provenance = best.winner.measurement, best.winner.provenance
    return {
        "problem": asdict(best.problem) | {"dtype": best.problem.dtype, "key": best.problem.key},
        "config": {"family": best.config.family, "knobs": best.config.knobs, "key": best.config.key},
        "policy": measurement.policy.value,
        "device_kind": best.device_kind,
        "median_us": best.median_us,
        "tflops": best.tflops,
        "samples_us": list(measurement.samples_us),
        "stage": measurement.stage,
        "versus_cublaslt_first": asdict(best.versus_first) if best.versus_first else None,
        "versus_cublaslt_best": asdict(best.versus_best) if best.versus_best else None,
        "verification": asdict(measurement.verification) if measurement.verification else None,
        "clocks": asdict(measurement.clocks) if measurement.clocks else None,
        "build_digest": measurement.build_digest,
        "provenance": asdict(provenance),
        "measurement_id": best.winner.id,
        "taken_at": best.winner.taken_at.isoformat(),
        "tried": best.tried,
        "failed": best.failed,
    }


def table_bytes(document: dict[str, Any]) -> bytes:
    """The document's one form as bytes."""
    return _canonical(document) + b"\n"


def write_table(path: Path, data: bytes) -> None:
    """Writes a table, whole or not at all.

    Raises:
        ExportError: the path can't be written.
    """
    partial: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(dir=path.parent, suffix=".partial")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(partial, path)
    except OSError as error:
        if partial:
            Path(partial).unlink(missing_ok=True)
        raise ExportError(f"{path} can't be written ({error.strerror}): free space or choose another path") from error


def _canonical(document: dict[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
