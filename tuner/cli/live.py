"""A progress line: redrawn on a terminal, printed now and then elsewhere."""

from __future__ import annotations

from typing import Self

from rich.live import Live
from rich.text import Text

from tuner.cli.output import notes


class LiveLine:
    """A progress line on standard error.

    Args:
        quiet: print nothing.
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
        """Updates the line.

        Args:
            due: without a terminal, print this line.
        """
        if self._live:
            self._live.update(Text(line))
        elif due and not self._quiet:
            notes.print(line)
