"""Bundles read back: checks every file before using any."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from os.path import islink
from pathlib import Path
from typing import Any, Final

from space.devices import find_profile
from space.family import is_own
from space.problem import Problem
from tuner.cubins import MOST_CUBIN_BYTES, fault_of
from tuner.errors import TableError
from tuner.evidence.records import Best
from tuner.files import is_endless
from tuner.tables.exporters.bundle import SCHEMA
from tuner.tables.tables import MOST_TABLE_BYTES, bests_in, document_in, library_in

#: The only names that a manifest may list, by its member. C++ programs read plans and algorithms.
_NAMES: Final = {
    "files": re.compile(r"table\.json|cubins/[0-9a-f]{64}\.cubin|plans/[0-9a-f]{32}\.plan", re.ASCII),
    "algorithms": re.compile(r"algorithms/[0-9a-f]{32}\.algorithm", re.ASCII),
}
_MOST_MANIFEST_BYTES: Final = 64 << 20


@dataclass(frozen=True)
class Bundle:
    """A bundle whose files match its manifest.

    Attributes:
        device, arch: what it was measured on and compiled for.
        document: the table.
        bests: by problem key.
        library: keys of problems whose library kernel is to be kept.
        programs: cubins by build digest.
    """

    device: str
    arch: str
    document: Mapping[str, Any]
    bests: Mapping[str, Best]
    library: frozenset[str]
    programs: Mapping[str, bytes]

    def program(self, problem: Problem) -> bytes:
        """The measured program of a problem; empty if the library runs it."""
        best = self.bests.get(problem.key)
        return self.programs.get(best.winner.measurement.build_digest, b"") if best else b""


def read_bundle(folder: Path) -> Bundle:
    """A bundle that `gemmtune export --format bundle` wrote.

    Raises:
        TableError: a file is missing, changed, of another version or arch, or lies outside of the folder.
    """
    manifest = _manifest(folder)
    listed = manifest["files"] | manifest["algorithms"]
    contents = {name: _file(folder, name, digest) for name, digest in listed.items()}
    device, arch, table = str(manifest.get("device")), str(manifest.get("arch")), folder / "table.json"
    document = document_in(contents["table.json"], table) if "table.json" in contents else {}
    if document.get("device") != device:
        raise TableError(f"{folder} has no table of {device!r}: export it again")
    programs = dict[str, bytes]()
    for name, content in contents.items():
        if name.startswith("cubins/"):
            if fault := fault_of(content, arch):
                raise TableError(f"{folder / name} is not a program for {arch}: {fault}; export the bundle again")
            programs[Path(name).stem] = content
    bests = {best.problem.key: best for best in bests_in(document, table)}
    own = {key: str(best.winner.measurement.build_digest)
           for key, best in bests.items() if is_own(best.config)}  # fmt: skip
    for key, digest in own.items():
        if digest not in programs:
            raise TableError(f"{folder} lacks the program {digest[:12]} of {key}: export it again")
    # Others read the manifest alone: C++ programs, and people.
    profile = find_profile(device)
    told = {"programs": own} | ({"multiprocessors": profile.sm_count} if profile else {})
    for name, value in told.items():
        if manifest.get(name) != value:
            raise TableError(f"{folder / 'manifest.json'} has other {name} than the table of {device}: export it again")
    return Bundle(device, arch, document, bests, library_in(document, table), programs)


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / "manifest.json"
    _check_file(path)
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_MANIFEST_BYTES + 1)
        manifest = json.loads(text)
        if not isinstance(manifest, dict) or len(text) > _MOST_MANIFEST_BYTES:
            raise TableError(f"{path} is not a manifest: export the bundle again")
        if manifest.get("schema") != SCHEMA:
            raise TableError(f"{path} is a {manifest.get('schema')!r}, not a {SCHEMA!r}: export the bundle again")
        # Bundles from before there were algorithms list none.
        manifest.setdefault("algorithms", {})
        for member, names in _NAMES.items():
            for name, digest in manifest[member].items():
                if not names.fullmatch(name) or not isinstance(digest, str):
                    raise TableError(f"{path} lists {name[:120]!r}, which no bundle has: none of it is used")
        return manifest
    except OSError as error:
        raise TableError(f"{path} can't be read ({error.strerror}): give a folder of `--format bundle`") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TableError(f"{path} is not a manifest ({error}): export the bundle again") from error


def _check_file(path: Path) -> None:
    """Checks that a file of a bundle is one, and its own."""
    # What a user may not see counts as no link here: opening it says why. `Path.is_symlink` raises.
    if islink(path) or (path.parent.name in ("cubins", "plans", "algorithms") and islink(path.parent)):
        raise TableError(f"{path} is a link: a bundle has files of its own")
    if is_endless(path):
        raise TableError(f"{path} is a pipe or a device: a bundle has files of its own")


def _file(folder: Path, name: str, digest: str) -> bytes:
    path = folder / name
    _check_file(path)
    most = MOST_TABLE_BYTES if name == "table.json" else MOST_CUBIN_BYTES
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise TableError(f"{path} can't be read ({error.strerror}): copy the whole bundle") from error
    if len(content) > most:
        raise TableError(f"{path} has more than {most >> 20:,} MiB, which no bundle has: copy it again")
    if hashlib.sha256(content).hexdigest() != digest:
        raise TableError(f"{path} was changed: its SHA-256 is not that of manifest.json; copy the bundle again")
    return content
