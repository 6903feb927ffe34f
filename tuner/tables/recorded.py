"""Bests of recordings, read from a table beside the Parquet files: an answer needs no PyArrow.

A store without a best of a problem is answered from them. `tuner.tables.from_recordings` makes the table.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Final

from space.devices import find_profile
from space.problem import Problem
from tuner.answering.staleness import outdated
from tuner.errors import TableError
from tuner.evidence.picks import precedence
from tuner.evidence.records import Best
from tuner.tables.tables import TableBests, read_table
from workers.measurement import Policy
from workers.replays import Sources, noted, replay_sentence, sources_here

#: The table's file name, in the folder of the recordings.
FILE: Final = "bests.json"


class RecordedBests:
    """The bests in tables of recordings (`tuner.answering.answers.ExactBests`).

    Of several recordings of one problem those under the policy that decides what is served come first, of these those
    of today's kernels, and of these the newest. Each best says in its note when the GPU measured it, and by which
    kernels.
    """

    def __init__(self, tables: Iterable[Path], *, damaged_too: bool = True) -> None:
        """Reads the tables.

        Args:
            damaged_too: whether a damaged one is an error; it is left out otherwise.

        Raises:
            TableError: a table was changed or can't be read.
        """
        self._tables: dict[str, TableBests] = {}
        for path in tables:
            with nullcontext() if damaged_too else suppress(TableError):
                self._tables[path.parent.name] = TableBests(read_table(path))

    def best(self, problem: Problem, device: str, policy: Policy | None = None) -> Best | None:
        """The best of one problem on a device model."""
        answered = self._answered(problem, device, policy)
        if answered is None:
            return None
        _, found, here = answered
        winner = found.winner
        said = replay_sentence(found.config, winner.provenance, winner.taken_at, here)
        note = noted(winner.measurement.note, said)
        return replace(found, winner=replace(winner, measurement=replace(winner.measurement, note=note)))

    def folder_with(self, problem: Problem, device: str) -> str | None:
        """The folder of the recording that answers a problem; None where none does."""
        answered = self._answered(problem, device, None)
        return answered[0] if answered else None

    def _answered(self, problem: Problem, device: str, policy: Policy | None) -> tuple[str, Best, Sources] | None:
        """The folder that answers, its best, and the sources that would be compiled here."""
        profile = find_profile(device)
        recorded = [
            (folder, best) for folder, table in self._tables.items() if (best := table.best(problem, device, policy))
        ]
        if profile is None or not recorded:
            return None
        here = sources_here(problem, profile.arch.name)
        folder, best = min(recorded, key=lambda each: _rank(each[1]))
        return folder, best, here


def _rank(best: Best) -> tuple[int, bool, float]:
    """Place of its policy among those that decide what is served of its problem, whether its kernel is another one
    today, and how long ago it was measured."""
    place, winner = precedence(best.problem, best.device).index(best.policy), best.winner
    return place, bool(outdated(best)), -winner.taken_at.timestamp()


@lru_cache(maxsize=8)
def recorded_bests(folder: Path, *, damaged_too: bool = True) -> RecordedBests:
    """The bests of every device whose recordings lie in a folder of `folder`.

    Args:
        damaged_too: whether a damaged table is an error; it is left out otherwise.

    Raises:
        TableError: a table was changed or can't be read.
    """
    return RecordedBests(sorted(folder.glob(f"*/{FILE}")), damaged_too=damaged_too)
