"""Logs a process's activities, and how long the GPU is idle during each."""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

#: Label of time outside watched functions.
REST: Final = "the rest"

Interval = tuple[float, float]
#: Label, begin and end in seconds of the monotonic clock, which a machine's processes share.
Span = tuple[str, float, float]


class HostLog:
    """Log of one thread's watched functions: each moment belongs to the innermost running one."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self._labels, self._since = [REST], time.monotonic()

    def watch(self, owner: Any, name: str, label: str) -> None:  # noqa: ANN401  (a class or a module)
        """Logs every call of a function from now on under a label."""
        watched = getattr(owner, name)

        @functools.wraps(watched)
        def call(*args: Any, **options: Any) -> Any:  # noqa: ANN401
            self.enter(label)
            try:
                return watched(*args, **options)
            finally:
                self.leave()

        setattr(owner, name, call)

    def enter(self, label: str) -> None:
        """Something begins."""
        self._turn()
        self._labels.append(label)

    def leave(self) -> None:
        """Ends the innermost function; the interrupted one continues."""
        self._turn()
        self._labels.pop()

    def taken(self) -> list[Span]:
        """The spans since the last call."""
        self._turn()
        spans, self.spans = self.spans, []
        return spans

    def _turn(self) -> None:
        now = time.monotonic()
        self.spans.append((self._labels[-1], self._since, now))
        self._since = now


@dataclass
class Share:
    """Totals of one label, in seconds.

    Attributes:
        seconds: host time.
        idle: host time while the GPU was idle.
        spans: number of uninterrupted spans.
    """

    seconds: float = 0.0
    idle: float = 0.0
    spans: int = 0


def idle_within(window: Interval, busy: Sequence[Interval]) -> list[Interval]:
    """Intervals in which the GPU was idle, in order: the complement of `busy`."""
    at, end = window
    idle = list[Interval]()
    for begin, until in sorted(busy):
        if at < min(begin, end):
            idle.append((at, min(begin, end)))
        at = max(at, until)
    return [*idle, (at, end)] if at < end else idle


def shares(window: Interval, spans: Sequence[Span], idle: Sequence[Interval]) -> dict[str, Share]:
    """Each label's share of a window, sorted by idle time, longest first.

    Args:
        spans: in order, as `HostLog` gives them.
        idle: of `idle_within`.
    """
    found, place = defaultdict[str, Share](Share), 0
    for label, begin, end in spans:
        begin, end = max(begin, window[0]), min(end, window[1])
        if begin >= end:
            continue
        share = found[label]
        share.seconds, share.spans = share.seconds + end - begin, share.spans + 1
        while place < len(idle) and idle[place][1] <= begin:
            place += 1
        for still in idle[place:]:
            if still[0] >= end:
                break
            share.idle += min(end, still[1]) - max(begin, still[0])
    return dict(sorted(found.items(), key=lambda item: -item[1].idle))
