"""What a benchmark publishes: its tables, under the command that printed them."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path


def command_of(benchmark: str) -> str:
    """This process's command as a reader types it, in backquotes.

    Args:
        benchmark: the module, as in `storm` or `search.stopping`.
    """
    return f"`{shlex.join(['python', '-m', f'benchmarks.{benchmark}', *sys.argv[1:]])}`"


def publish(benchmark: str, out: Path | None, *paragraphs: str) -> None:
    """Writes the command and the paragraphs to `out`; nothing without one."""
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text("\n\n".join([command_of(benchmark), *paragraphs]) + "\n")
