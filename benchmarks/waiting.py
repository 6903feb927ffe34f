"""Bounded waits: each names its reason and deadline, and a wait that takes too long ends the benchmark.

Another thread watches the limit, so the benchmark ends even if the waiting thread is stuck in a call.
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
#: Exit code after a wait that took too long.
EXIT_LATE: Final = 70
#: Data folders of PostgreSQL servers, which are not our child processes.
DATABASES: Final = list[Path]()


def say(text: str) -> None:
    """Prints one line with the time, unbuffered."""
    print(f"{datetime.now():%H:%M:%S} {text}", flush=True)


@contextmanager
def within(seconds: float, what: str, *logs: Path) -> Iterator[None]:
    """Limits the block to `seconds`, then prints the reason, the ends of the logs and every thread's stack, kills
    all processes started from here, and exits with `EXIT_LATE`.

    Args:
        what: condition at the block's end, as in "the service is ready".
        logs: log files, or folders with files `*.log` and `log`.
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


def until(holds: Callable[[], bool]) -> None:
    """Polls until the condition holds; call it inside `within`, which limits it."""
    while not holds():
        time.sleep(0.1)


def give_up(reason: str, logs: Sequence[Path]) -> None:
    """Prints logs and stacks, and ends this process and all processes started from it."""
    sys.stdout.flush()
    print(f"FAILED: {reason}", file=sys.stderr)
    for log in _files(logs):
        print(f"--- the end of {log.name}", file=sys.stderr)
        print("\n".join(_last_lines(log)) or "(empty)", file=sys.stderr)
    print("--- processes that were started from here", file=sys.stderr)
    for child in all_started():
        with contextlib.suppress(psutil.Error):
            print(f"{child.pid} {child.status()} {' '.join(child.cmdline())[:200]}", file=sys.stderr)
            child.kill()
    print("--- where this process is", file=sys.stderr)
    faulthandler.dump_traceback(sys.stderr)
    sys.stderr.flush()
    os._exit(EXIT_LATE)


def all_started() -> list[psutil.Process]:
    """Every process that was started from here, databases among them."""
    found: list[psutil.Process] = psutil.Process().children(recursive=True)
    for path in DATABASES:
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
