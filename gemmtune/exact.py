"""Exact: a table or a bundle as a source that answers only for its own problems."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gemmtune.found import Found
from space.devices import card_of, identity_named
from space.problem import Problem
from tuner.answering.staleness import Built, proved_build, staleness
from tuner.errors import TableError
from tuner.evidence.records import Best
from tuner.files import is_folder
from tuner.tables.bundles import Bundle, read_bundle
from tuner.tables.exporters.guard import MIN_GAIN, guarded
from tuner.tables.tables import bests_in, read_document
from workers.cuda.machine import Machine

#: A path makes one slash of two.
_URL: Final = re.compile(r"https?:/|[a-z0-9+]+://", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Exact:
    """Measured bests of one device model.

    Attributes:
        device: GPU model.
        bests: by problem key.
        bundle: their programs; None if they are built here.
    """

    device: str
    bests: Mapping[str, Best]
    bundle: Bundle | None = None

    def find(self, problem: Problem, device: str) -> Found:
        """The measured config of a problem; nothing is guessed."""
        if device != self.device:
            return Found(None, f"the table is of {self.device!r}, this is {device!r}: tune here, or use its own table")
        best = self.bests.get(problem.key)
        if best is None:
            return Found(None, "the table leaves this problem to the library")
        # Today's launcher would give a program of another text arguments that it does not know.
        if self.bundle and (changed := staleness(best)):
            return Found(None, f"the bundle is of another version of gemmtune: {changed}; measure again with `gemmtune "
                               "retune --stale` and export it again")  # fmt: skip
        program = self.bundle.program(problem) if self.bundle else b""
        build = best.winner.measurement.build_digest if self.bundle else proved_build(Built.of(best))
        return Found(best.config, "measured: in the table", "measured", best.winner.provenance.cublaslt, build, program)


def differences(source: Exact, machine: Machine) -> tuple[str, str]:
    """What a table says of another machine than this one: of its card, and of the programs that it was measured with.

    Drivers of one branch, the first number of a version, count as one: its later releases are fixes. What the machine
    does not tell differs in nothing.

    Returns:
        Two sentences' ends; empty without a difference.
    """
    cards = sorted({identity_named(card) for card in machine.cards})
    card = "" if not cards or card_of(source.device) in cards else (
        f"it is of {source.device!r}, and this machine has {', '.join(cards)}"
    )  # fmt: skip
    measured = [best.winner.provenance for best in source.bests.values()]
    drivers = {each.driver for each in measured if each.driver and _branch(each.driver) != _branch(machine.driver)}
    libraries = {each.cublaslt for each in measured if each.cublaslt and each.cublaslt != machine.cublaslt}
    programs = []
    if machine.driver and drivers:
        programs.append(f"driver {', '.join(sorted(drivers))}, and {machine.driver} runs here")
    if machine.cublaslt and libraries:
        programs.append(f"cuBLASLt {', '.join(sorted(libraries))}, and {machine.cublaslt} is loaded here")
    return card, f"it was measured with {'; with '.join(programs)}" if programs else ""


def check_machine(table: str | Path, source: Exact, machine: Machine, stale: bool) -> str:
    """Refuses a table of another machine.

    Args:
        stale: take one that was measured with another driver or cuBLASLt.

    Returns:
        What of these differs; empty if nothing does.

    Raises:
        TableError: what differs, and what to do.
    """
    card, programs = differences(source, machine)
    if card:
        raise TableError(f"{table} is not used: {card}; tune here, or use its own table")
    if programs and not stale:
        raise TableError(f"{table} is not used: {programs}; measure again with `gemmtune retune --stale`, or pass "
                         "stale=True (GEMMTUNE_TABLE_STALE=1 for engines and gemmtune.launch)")  # fmt: skip
    return programs


def check_path(table: str, caller: str) -> None:
    """Refuses a URL.

    Args:
        caller: who takes no URL.

    Raises:
        TableError: it is one, or what a path makes of one.
    """
    if _URL.match(table):
        raise TableError(f"{table} is a URL, and {caller} takes a file or a folder of `gemmtune export`: only "
                         "configure() of gemmtune.torch asks a service or a database")  # fmt: skip


def _branch(driver: str) -> str:
    return driver.partition(".")[0]


def exact(path: Path, *, guard: bool = False, min_gain: float | None = None) -> Exact:
    """A table file or a bundle.

    Args:
        guard: leave out what is not surely faster than the library's first choice.
        min_gain: by how much; default: the margin of the export, and 1.02 for a table of every best.

    Raises:
        TableError: it can't be read, or is not what its hashes say.
    """
    bundle = read_bundle(path) if is_folder(path) else None
    document = bundle.document if bundle else read_document(path)
    try:
        least = document.get("min_gain", MIN_GAIN) if min_gain is None else min_gain
        kept = guarded(document, least).entries if guard else document["entries"]
        device = str(document["device"])
    except (KeyError, TypeError) as error:
        raise TableError(f"{path} is not a table ({error}): export it with `gemmtune export`") from error
    bests = bests_in({"device": device, "entries": kept}, path)
    return Exact(device, {best.problem.key: best for best in bests}, bundle)
