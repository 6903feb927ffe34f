"""Signals to commands that run rounds: the first one reports the round as it is, the next one ends the process."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from tuner.cli.output import notes


def interrupt() -> None:
    """Ends the command."""
    raise KeyboardInterrupt


@contextmanager
def leaving(leave: Callable[[], None], what: str, again: Callable[[], None] = interrupt) -> Iterator[list[int]]:
    """Within the block, the first SIGINT or SIGTERM calls `leave`, and further ones call `again`.

    Yields:
        The signals so far.
    """
    asked: list[int] = []

    def stop(number: int, frame: object) -> None:
        asked.append(number)
        if len(asked) > 1:
            again()
            return
        leave()
        # Whoever read the notes may have been ended by the same Ctrl-C, and Rich then exits: the round would be lost. A
        # signal may also come in the middle of another note.
        with suppress(OSError, RuntimeError, SystemExit):
            notes.print(f"leaving: {what}; repeat to end at once")

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
