"""A line of progress: redrawn on a terminal, printed now and then elsewhere."""

from __future__ import annotations

from typing import Self

from rich.live import Live
from rich.text import Text

from tuner.cli.output import notes


class LiveLine:
    """Where work stands, on standard error.

    Args:
        quiet: nothing is said at all.
    """

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._live = Live(console=notes, refresh_per_second=8) if notes.is_terminal and not quiet else None

    def __enter__(self) -> Self:
        if self._live:
            self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.__exit__(None, None, None)

    def say(self, line: str, due: bool) -> None:
        """The line as it is now.

        Args:
            due: whether it is worth a line of its own where none is redrawn.
        """
        if self._live:
            self._live.update(Text(line))
        elif due and not self._quiet:
            notes.print(line, markup=False)
