"""Bundle: a folder with the table and its programs, for machines without compiler, store or service."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from space.devices import profile_named
from space.errors import ConfigError
from space.family import family_named
from tuner.tables.entries import canonical
from tuner.tables.exporters import json_table
from tuner.tables.exporters.guard import Guarded
from tuner.tables.exporters.options import ExportOptions, Plan, Program

NAME: Final = "bundle"
MEDIA_TYPE: Final = "application/json"
WRITES: Final = "a folder with manifest.json, table.json, the compiled programs and the library's algorithms"
OF_LIBRARY: Final = False
FOLDER: Final = True
SCHEMA: Final = "gemmtune.bundle/1"


def writable(table: Guarded, options: ExportOptions) -> Guarded:
    """The entries whose programs are there."""
    return with_programs(table, options.program)[0] if options.program else table


def files(table: Guarded, options: ExportOptions) -> Mapping[str, bytes]:
    """The files of the folder by their paths in it. The manifest names the SHA-256 of every other one.

    Raises:
        ConfigError: nothing can provide programs.
    """
    if options.program is None:
        raise ConfigError("a bundle ships compiled programs, which this service lacks: write it with `gemmtune export`")
    kept, programs = with_programs(table, options.program)
    profile = profile_named(table.device)
    found = {"table.json": canonical(json_table.document(kept)) + b"\n"}
    found |= {f"cubins/{digest}.cubin": cubin for digest, cubin in programs.items()}
    found |= _texts("plan", (entry for entry in kept.entries if _own(entry)), options.plan)
    algorithms = _texts("algorithm", (entry for entry in kept.entries if not _own(entry)), options.plan)
    manifest: dict[str, Any] = {
        "schema": SCHEMA,
        "device": table.device,
        "arch": profile.arch.name,
        "multiprocessors": profile.sm_count,
        "programs": {entry["problem"]["key"]: entry["build_digest"] for entry in kept.entries if _own(entry)},
        "files": _digests(found),
        # Readers from before there were algorithms refuse other names among the files, and skip this.
        "algorithms": _digests(algorithms),
        "left_out": dict(kept.left_out),
    }
    for name in ("driver", "nvrtc", "cublaslt"):
        manifest[name] = sorted({entry["provenance"][name] for entry in kept.entries})
    return {"manifest.json": canonical(manifest) + b"\n"} | found | algorithms


def next_step(table: Guarded, options: ExportOptions) -> str:
    """How torch programs use the folder."""
    if not table.entries:
        return json_table.NO_ENTRY
    return f"to use it in a torch program: gemmtune.torch.configure({options.name!r}), or install({options.name!r})"


def with_programs(table: Guarded, program: Program) -> tuple[Guarded, dict[str, bytes]]:
    """The entries whose measured programs are there, and these programs by build digest."""
    programs = dict[str, bytes]()

    def why_none(entry: Mapping[str, Any]) -> str:
        found = program(entry) if _own(entry) else b""
        if isinstance(found, str):
            return found
        if found:
            programs[entry["build_digest"]] = found
        return ""

    return table.without(why_none), programs


def _texts(kind: str, entries: Iterable[Mapping[str, Any]], plan: Plan | None) -> dict[str, bytes]:
    """Files of one kind with the plans of entries; none for an entry without a plan."""
    texts = {entry["problem"]["key"]: plan(entry) for entry in entries} if plan else {}
    return {f"{kind}s/{_name_of(key)}.{kind}": text.encode() for key, text in texts.items() if text}


def _digests(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())}


def _name_of(key: str) -> str:
    """A file name for a problem."""
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def _own(entry: Mapping[str, Any]) -> bool:
    """Whether one of our programs runs; the library's are on the user's machine."""
    return family_named(entry["config"]["family"]).own
