"""Shapes: the problems of a program with their counts, and the products that gemmtune does not tune."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from space.devices import DeviceProfile
from space.errors import ProblemError
from space.kind import DEFAULT_KIND, KINDS
from space.problem import Problem
from space.rank import roofline_us
from tuner.tables.problems import MOST_COUNT, MOST_PROBLEMS

_MOST_REASONS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Shapes:
    """The content of sources.

    Attributes:
        counts: how often each problem runs, in the order of the sources.
        left_out: products that gemmtune does not tune: reason, and how often such a product runs.
        notes: remarks on the counts.
    """

    counts: Mapping[Problem, int]
    left_out: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Tally:
    """Collects shapes with bounded memory."""

    def __init__(self) -> None:
        self._counts: Counter[Problem] = Counter()
        self._left_out: Counter[str] = Counter()
        self._notes: dict[str, None] = {}

    def add(self, problem: Problem, count: int, where: str) -> None:
        """Counts a problem.

        Raises:
            ProblemError: it is one problem too many, or its count too high.
        """
        if problem not in self._counts and len(self._counts) >= MOST_PROBLEMS:
            raise ProblemError(f"{where}: more than {MOST_PROBLEMS:,} different problems: give a shorter list")
        if self._counts[problem] + count > MOST_COUNT:
            raise ProblemError(f"{where}: {problem.title} runs more than {MOST_COUNT:,} times: give smaller counts")
        self._counts[problem] += count

    def leave_out(self, reason: str, count: int = 1) -> None:
        """Counts a product that gemmtune does not tune. Reasons beyond the first thousand count together."""
        known = reason in self._left_out or len(self._left_out) < _MOST_REASONS
        self._left_out[reason if known else "for other reasons"] += count

    def note(self, sentence: str) -> None:
        """Adds a note, once."""
        self._notes[sentence] = None

    def shapes(self) -> Shapes:
        return Shapes(dict(self._counts), dict(self._left_out), tuple(self._notes))


def merged(found: Iterable[Shapes]) -> Shapes:
    """The shapes of several sources together.

    Raises:
        ProblemError: too many problems.
    """
    tally = Tally()
    for shapes in found:
        for problem, count in shapes.counts.items():
            tally.add(problem, count, "the sources together")
        for reason, count in shapes.left_out.items():
            tally.leave_out(reason, count)
        for sentence in shapes.notes:
            tally.note(sentence)
    return tally.shapes()


@dataclass(frozen=True, slots=True)
class Weighted:
    """One problem of a list.

    Attributes:
        roofline_us: least time of one run on the device.
        share: of the list's roofline time.
    """

    problem: Problem
    count: int
    roofline_us: float
    share: float


def weighted(shapes: Shapes, device: DeviceProfile) -> list[Weighted]:
    """The problems with their roofline times on a device, the largest share first."""
    bounds = {problem: roofline_us(problem, device) for problem in shapes.counts}
    total = sum(bounds[problem] * count for problem, count in shapes.counts.items()) or 1.0
    found = [
        Weighted(problem, count, bounds[problem], bounds[problem] * count / total)
        for problem, count in shapes.counts.items()
    ]
    return sorted(found, key=lambda each: -each.share)


def as_csv(listed: Sequence[tuple[Problem, int]]) -> str:
    """The list as CSV that `gemmtune campaign` and `gemmtune shapes` read: the problems' fields, and `count`."""
    kinds = {problem.kind for problem, _ in listed} or {DEFAULT_KIND}
    names = list(dict.fromkeys(field.name for kind in sorted(kinds) for field in KINDS[kind].fields))
    with_kind = ["kind"] if kinds - {DEFAULT_KIND} else []
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*with_kind, *names, "count"])
    for problem, count in listed:
        fields = {"kind": problem.kind} | problem.fields()
        writer.writerow([*(fields.get(name, "") for name in [*with_kind, *names]), count])
    return out.getvalue()
