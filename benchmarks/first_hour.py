"""What a new user waits for, in a clean clone and with an empty home: `make tune`, then single commands.

    python -m benchmarks.first_hour 25b92f2 HEAD --out benchmarks/results/first_hour.md

Packages come from pip's index, so its speed counts.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks.published import ROOT, add_out, publish

_TURNS: Final = 7
#: Timed after `make tune`: what they stand for, and their words. The second `best` has a home without a store.
_COMMANDS: Final = (
    ("`gemmtune --version`", ("--version",), True),
    ("`gemmtune best 4096x4096x4096`, from the store", ("best", "4096x4096x4096"), True),
    ("the same from the recordings", ("best", "4096x4096x4096"), False),
    ("`gemmtune best 3333x4444x2048`, predicted", ("best", "3333x4444x2048"), False),
)
#: Variables that a new user has not set.
_WITHOUT: Final = tuple(
    word
    for name in ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "GEMMTUNE_DB", "GEMMTUNE_CACHE_DIR")
    for word in ("--unset", name)
)


def main() -> None:
    """Measures each commit and prints the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("commits", nargs="*", default=["HEAD"])
    add_out(options)
    given = options.parse_args()
    heading = ["commit", "`make tune`, with its first result", "`.venv`", *(name for name, _, _ in _COMMANDS)]
    machine = f"{os.cpu_count()} CPU cores, load average {os.getloadavg()[0]:.1f}"
    lines = [f"{machine}; medians of {_TURNS} runs of each command.", "", f"| {' | '.join(heading)} |"]
    lines.append("| --- " * len(heading) + "|")
    for commit in given.commits:
        with tempfile.TemporaryDirectory() as folder:
            lines.append(row(commit, Path(folder)))
        print(lines[-1], flush=True)
    publish("first_hour", given.out, "\n".join(lines))


def row(commit: str, folder: Path) -> str:
    """The measurements of one commit, cloned into a folder.

    Raises:
        CalledProcessError: a command failed.
    """
    clone, home, empty = folder / "gemmtune", folder / "home", folder / "empty"
    home.mkdir()
    empty.mkdir()
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    subprocess.run(["git", "-C", clone, "checkout", "--quiet", "--detach", resolved(commit)], check=True)
    tune_s = seconds(["make", "tune"], clone, home)
    size_mb = int(subprocess.check_output(["du", "-sm", clone / ".venv"], text=True).split()[0])
    program = str(clone / ".venv" / "bin" / "gemmtune")
    times = [
        statistics.median(seconds([program, *words], clone, home if stored else empty) for _ in range(_TURNS))
        for _, words, stored in _COMMANDS
    ]
    cells = [f"`{resolved(commit)[:7]}`", f"{tune_s:.0f} s", f"{size_mb} MB", *(f"{one:.2f} s" for one in times)]
    return f"| {' | '.join(cells)} |"


def resolved(commit: str) -> str:
    """The whole hash of a commit."""
    return subprocess.check_output(["git", "-C", ROOT, "rev-parse", f"{commit}^{{commit}}"], text=True).strip()


def seconds(words: list[str], folder: Path, home: Path) -> float:
    """Wall-clock time of a command in a new user's environment."""
    begin = time.perf_counter()
    subprocess.run(["env", *_WITHOUT, f"HOME={home}", *words], cwd=folder, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, check=True)  # fmt: skip
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
