"""Tables: every served best of one device as one document, with canonical bytes.

`gemmtune export --all` and `GET /v1/tables/{device}` give the same bytes for the same content. The content hash covers
everything but itself and is the strong ETag over HTTP.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from space.errors import SpaceError
from space.problem import Problem
from tuner.errors import TableError, UnknownDevice
from tuner.evidence.legality import forbidden
from tuner.evidence.records import Best
from tuner.files import is_database, is_endless
from tuner.tables.entries import best_of, canonical, content_of, entry
from workers.measurement import Policy

# Reading a table needs no database.
if TYPE_CHECKING:
    from tuner.evidence.store import Store

SCHEMA: Final = "gemmtune.table/1"
MOST_TABLE_BYTES: Final = 1 << 30


def table(store: Store, device: str, policy: Policy | None = None) -> dict[str, Any]:
    """The table of one device model: its `chosen_bests`.

    Raises:
        UnknownDevice: the store has no best of the device.
    """
    return table_of(chosen_bests(store, device, policy), device)


def chosen_bests(store: Store, device: str, policy: Policy | None = None) -> list[Best]:
    """The `tuned_bests` without those that a rule forbids by now."""
    return legal_of(tuned_bests(store, device, policy))


def tuned_bests(store: Store, device: str, policy: Policy | None = None) -> list[Best]:
    """The served bests of one device model by problem key; a GPU's own best takes precedence over a replayed one.

    Args:
        policy: its bests replace the served ones of their problems, unless a rule forbids them by now.

    Raises:
        UnknownDevice: the store has no best of the device.
    """
    chosen: dict[str, Best] = {}
    for best in store.bests(device):
        # `bests` orders by problem, then by kind: `cuda` comes before `recorded`.
        chosen.setdefault(best.problem.key, best)
    if not chosen:
        known = ", ".join(sorted({name for name, _ in store.devices()})) or "no device yet"
        raise UnknownDevice(
            f"nothing was tuned on {device!r}: the store has bests of {known}; tune it with `gemmtune tune`"
        )
    for best in store.bests_by_policy(device) if policy else ():
        served = chosen.get(best.problem.key)
        alike = served is not None and (best.policy, best.device_kind) == (policy, served.device_kind)
        if alike and not forbidden(best.problem, best.config, best.device):
            chosen[best.problem.key] = best
    return [best for _, best in sorted(chosen.items())]


def legal_of(bests: Iterable[Best]) -> list[Best]:
    """Bests without those that a rule forbids by now."""
    return [best for best in bests if not forbidden(best.problem, best.config, best.device)]


def table_of(bests: Iterable[Best], device: str) -> dict[str, Any]:
    """The table of these bests, one a problem, of one device model."""
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "device": device,
        "entries": [entry(best) for best in sorted(bests, key=lambda best: best.problem.key)],
    }
    return document | {"content": content_of(document)}


def read_table(path: Path) -> list[Best]:
    """The bests of a table that `gemmtune export` wrote.

    Raises:
        TableError: the file is missing, is not a table of this version, or was changed.
    """
    return bests_in(read_document(path), path)


def read_document(path: Path) -> dict[str, Any]:
    """A table file's document, whose schema and hash are checked.

    Raises:
        TableError: the file is missing, is not a table of this version, or was changed.
    """
    try:
        if is_endless(path):
            raise TableError(f"{path} can't be read: it is a pipe or a device; name a file")
        if is_database(path):
            raise TableError(f"{path} is a database, perhaps a store, not a table: write one with `gemmtune export`")
        if path.stat().st_size > MOST_TABLE_BYTES:
            raise TableError(f"{path} has more than {MOST_TABLE_BYTES >> 20:,} MiB, as no table has: export it again")
        content = path.read_bytes()
    except OSError as error:
        raise TableError(f"{path} can't be read ({error.strerror}): export it with `gemmtune export`") from error
    return document_in(content, path)


def other_than_a_table(schema: object) -> str:
    """What a document of another schema is, and what to name in its place, for the end of a sentence."""
    if str(schema).startswith("gemmtune.bundle/"):
        return "a bundle's manifest, not a table: name the bundle's folder, or its table.json where a file is read"
    return f"a {schema!r}, not a {SCHEMA!r}: export it again"


def document_in(content: bytes, path: Path) -> dict[str, Any]:
    """A table's document from a file's bytes, whose schema and hash are checked.

    Args:
        path: for messages.

    Raises:
        TableError: they are no table of this version, or were changed.
    """
    try:
        document: dict[str, Any] = json.loads(content)
        if document["schema"] != SCHEMA:
            raise TableError(f"{path} is {other_than_a_table(document['schema'])}")
        if content_of(document) != document["content"]:
            raise TableError(f"{path} was changed: its content does not match its hash; export it again")
        return document
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TableError(f"{path} is not a table ({error}): export it with `gemmtune export --format json`") from error


def bests_in(document: Mapping[str, Any], path: Path) -> list[Best]:
    """The bests of a table's document.

    Raises:
        TableError: an entry is malformed.
    """
    try:
        bests = [best_of(document["device"], content) for content in document["entries"]]
        for best in bests:
            _check(best)
        if twice := [key for key, count in Counter(best.problem.key for best in bests).items() if count > 1]:
            raise ValueError(f"{twice[0]} is in it twice")
        return bests
    except (ValueError, KeyError, TypeError, AttributeError, SpaceError) as error:
        # What wrote a whole table knew its words: a knob's value, a family, a fact beside the evidence.
        if isinstance(error, SpaceError) or "unexpected keyword" in str(error):
            raise TableError(
                f"{path} has what this version of gemmtune does not know ({error}): it is of another one; export it "
                "with this one, or install that one here"
            ) from error
        raise TableError(f"{path} is not a table ({error}): export it with `gemmtune export --format json`") from error


def _check(best: Best) -> None:
    """Checks what programs compute with: a hash proves that a table is whole, not what is in it.

    Raises:
        ValueError: a time, a ratio or an energy is no positive number, a count is no count, or a version, the device,
            the build or the note is no text.
    """
    measurement, by = best.winner.measurement, best.winner.provenance
    ratios = [each for each in (best.versus_first, best.versus_best) if each is not None]
    times = [*measurement.samples_us, *(number for each in ratios for number in (each.value, each.low, each.high))]
    joules = [] if measurement.product_joules is None else [measurement.product_joules]
    versions = (by.driver, by.nvrtc, by.cublaslt, by.kernel_source_digest)
    texts = (best.device, measurement.build_digest, measurement.note)
    for values, right, what in (
        (times, _is_positive, "a time or a ratio"), (joules, _is_positive, "an energy"),
        ((best.tried, *best.failed.values()), _is_count, "a count of candidates"),
        (versions, _is_text, "a version"), (texts, _is_text, "a device, a build or a note"),
    ):  # fmt: skip
        for value in values:
            if not right(value):
                raise ValueError(f"{best.problem.key} has {repr(value)[:80]} for {what}")


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and 0 < value < math.inf


def _is_count(value: object) -> bool:
    return isinstance(value, int) and value >= 0


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def library_in(document: Mapping[str, Any], path: Path) -> frozenset[str]:
    """Keys of the problems that a table leaves to the library.

    Raises:
        TableError: they are no keys.
    """
    found = document.get("library") or {}
    if not isinstance(found, dict | list) or not all(isinstance(key, str) for key in found):
        raise TableError(f"{path} is not a table (library = {found!r:.80}): export it again")
    return frozenset(found)


class TableBests:
    """The bests of a table, with the interface of a store (`tuner.answering.answers.Bests`)."""

    def __init__(self, bests: Sequence[Best]) -> None:
        self._bests = {(best.problem.key, best.device): best for best in bests}

    def best(self, problem: Problem, device: str, policy: Policy | None = None) -> Best | None:
        """The best of one problem on a device model; a table has the served one, of whatever policy."""
        best = self._bests.get((problem.key, device))
        return best if best and policy in (None, best.policy) else None

    def wrong(self, problem: Problem, device: str) -> frozenset[str]:
        """None: a table has only what was right."""
        return frozenset()

    def neighbours(self, problem: Problem, device: str, policy: Policy | None = None) -> list[Best]:
        """Bests on `device` of problems that differ from `problem` only in extents, nearest first.

        Args:
            policy: for `Bests`; a table has the served one of each problem.
        """
        alike = [
            best for best in self._bests.values()
            if best.device == device and best.problem != problem
            and best.problem.key_around_shape() == problem.key_around_shape()
        ]  # fmt: skip
        return sorted(alike, key=lambda best: (problem.distance(best.problem), best.problem.key))


def table_bytes(document: dict[str, Any]) -> bytes:
    """The document's canonical bytes."""
    return canonical(document) + b"\n"
