"""A progress line: redrawn on a terminal, printed now and then elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.live import Live
from rich.text import Text

from tuner.cli.output import notes


@contextmanager
def live_line(quiet: bool) -> Iterator[Callable[[str, bool], None]]:
    """A progress line on standard error; none with `quiet`.

    Yields:
        Function that updates the line; its second argument says whether to print it where there is no terminal.
    """
    if notes.is_terminal and not quiet:
        with Live(console=notes, refresh_per_second=8) as live:
            yield lambda line, due: live.update(Text(line))
    else:
        yield lambda line, due: notes.print(line) if due and not quiet else None
