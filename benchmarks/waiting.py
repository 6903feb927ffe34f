"""Bounded waits: each names its reason and deadline, and a wait that is too long ends the benchmark.

It ends even when the thread that waits is stuck in a call that never returns: the limit is watched from another.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final

import psutil

_TAIL_LINES: Final = 40
#: What the process ends with when a wait was too long.
EXIT_LATE: Final = 70


def say(text: str) -> None:
    """One line with the moment, at once."""
    print(f"{datetime.now():%H:%M:%S} {text}", flush=True)


@contextmanager
def within(seconds: float, what: str, *logs: Path) -> Iterator[None]:
    """The block has to end within `seconds`; else the reason, the logs' ends and every thread's place are shown,
    all processes that were started from here are killed, and this one ends with `EXIT_LATE`.

    Args:
        what: has to be so at the block's end, as in "the service is ready".
        logs: files, or folders of which every `*.log` and `log` is shown.
    """
    say(f"waiting until {what} (at most {seconds:g} s)")
    started, over = time.monotonic(), threading.Event()

    def watch() -> None:
        if not over.wait(seconds):
            give_up(f"after {seconds:g} s it is still not so that {what}", logs)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    say(f"{what}: {time.monotonic() - started:.1f} s")


def until(holds: Callable[[], bool], pause_seconds: float = 0.1) -> None:
    """Polls until the condition holds; call it inside `within`, which bounds it."""
    while not holds():
        time.sleep(pause_seconds)


def give_up(reason: str, logs: Sequence[Path]) -> None:
    """Shows what there is to see, and ends this process and all that it started."""
    sys.stdout.flush()
    print(f"FAILED: {reason}", file=sys.stderr)
    for log in _files(logs):
        print(f"--- the end of {log.name}", file=sys.stderr)
        print("\n".join(_last_lines(log)) or "(empty)", file=sys.stderr)
    print("--- processes that were started from here", file=sys.stderr)
    for child in [*psutil.Process().children(recursive=True), *_databases(logs)]:
        with contextlib.suppress(psutil.Error):
            print(f"{child.pid} {child.status()} {' '.join(child.cmdline())[:200]}", file=sys.stderr)
            child.kill()
    print("--- where this process is", file=sys.stderr)
    faulthandler.dump_traceback(sys.stderr)
    sys.stderr.flush()
    os._exit(EXIT_LATE)


def _databases(logs: Sequence[Path]) -> list[psutil.Process]:
    """PostgreSQL servers whose data lie there: they have no parent among us."""
    found = []
    for path in logs:
        with contextlib.suppress(OSError, ValueError, IndexError, psutil.Error):
            found.append(psutil.Process(int((path / "postmaster.pid").read_text().split()[0])))
    return found


def _files(logs: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for path in logs:
        found += sorted({*path.rglob("*.log"), *path.rglob("log")}) if path.is_dir() else [path]
    return [path for path in found if path.is_file()]


def _last_lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
    except OSError as error:
        return [f"can't be read: {error}"]
