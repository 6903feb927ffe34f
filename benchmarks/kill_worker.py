"""Sends kill -9 alternately to the GPU process and to the whole command at random moments of `gemmtune tune`.

python -m benchmarks.kill_worker 4096x4096x4096 --kills 20 --out benchmarks/results/kill_worker_h200.md

A killed command is restarted; a killed GPU process is not, because the command that owns it replaces it.
"""

from __future__ import annotations

import argparse
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from benchmarks.command import WrongInput, as_command, positive
from benchmarks.facts import recordings
from benchmarks.published import add_out, publish
from space.kinds.gemm import Gemm
from tuner.evidence.store import Store
from tuner.settings import database_url

HEADER = (
    "| kill | what | after s | measurements kept | lost | in a study twice | went on |\n"
    "| --- | --- | --- | --- | --- | --- | --- |"
)
_POLL_SECONDS = 0.05
#: A command without a new measurement for this long counts as stuck.
_PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Kept:
    """Contents of a store."""

    keys: frozenset[tuple[int, str, str]]
    twice: int


def main() -> None:
    """Kills, counts, and lets the last run finish."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("shape")
    options.add_argument("--device", default="cuda:0")
    options.add_argument("--kills", type=int, default=20)
    options.add_argument("--candidates", type=positive, default=2500)
    options.add_argument("--longest", type=float, default=2.5, help="seconds until a kill, at most")
    options.add_argument("--seed", type=int, default=0)
    add_out(options)
    given = options.parse_args()
    Gemm.parse(given.shape)
    moments = random.Random(given.seed)
    lines = [HEADER]
    print(HEADER, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        db = f"{folder}/tune.db"
        command = [sys.executable, "-m", "gemmtune", "tune", given.shape, "--device", given.device, "--candidates",
                   str(given.candidates), "--db", db]  # fmt: skip
        run = start(command)
        if not measuring(run, db, 0):
            run.kill()
            raise WrongInput(f"`{shlex.join(command[2:-2])}` measures nothing here: run it, and it says why")
        for number in range(1, given.kills + 1):
            whole = number % 2 == 0
            run, line = one_kill(number, run, command, db, whole, moments.uniform(0.3, given.longest))
            lines.append(line)
            print(line, flush=True)
            # An interrupted run keeps its results.
            publish("kill_worker", given.out, "\n".join(lines), read=recordings(given.device))
        run.wait(timeout=3600)
        if run.returncode:
            # The run failed: the next one continues and finishes.
            print(f"the last run ended with {run.returncode}, and is started once more", flush=True)
        output = subprocess.run(command, check=True, capture_output=True, text=True).stderr
        kept = count(db)
    ending = ([line for line in output.splitlines() if "candidates" in line] or [output[-200:]])[-1]
    summary = (
        f"The last run ended by itself: `{ending}`\n"
        f"Measurements in the store: {len(kept.keys)}, of which twice in a study: {kept.twice}."
    )
    print(summary)
    text = "\n".join([*lines, "", summary])
    publish("kill_worker", given.out, text, read=recordings(given.device))


def one_kill(
    number: int, run: subprocess.Popen[bytes], command: list[str], db: str, whole: bool, after: float
) -> tuple[subprocess.Popen[bytes], str]:
    """Kills once; returns the run that continues and a line of the table."""
    if run.poll() is not None:
        run = start(command)
    measuring(run, db, len(count(db).keys))
    time.sleep(after)
    victim = run.pid if whole else gpu_process_of(run.pid)
    before = count(db)
    if victim is not None and run.poll() is None:
        os.kill(victim, signal.SIGKILL)
    if whole:
        run.wait()
        run = start(command)
    kept = count(db)
    went_on = measuring(run, db, len(kept.keys))
    what = "the command" if whole else "the GPU process" if victim is not None else "no GPU process was there"
    lost = len(before.keys - kept.keys)
    return run, (
        f"| {number} | {what} | {after:.2f} | {len(kept.keys)} | {lost} | {kept.twice} | {'yes' if went_on else 'NO'} |"
    )


def start(command: list[str]) -> subprocess.Popen[bytes]:
    """One run of the command."""
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def measuring(run: subprocess.Popen[bytes], db: str, kept: int) -> bool:
    """Waits until the store has more than `kept` measurements, or the run has succeeded."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < until:
        if run.poll() is not None:
            return run.returncode == 0
        if len(count(db).keys) > kept:
            return True
        time.sleep(_POLL_SECONDS)
    return False


def gpu_process_of(pid: int) -> int | None:
    """The process that owns the GPU for a command, from /proc."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if parent == pid and any(b"workers.cuda.process" in word for word in words):
            return int(entry.name)
    return None


def count(db: str) -> Kept:
    """Counts the store's measurements and those whose config and stage a study holds more than once."""
    if not Path(db).exists():
        return Kept(frozenset(), 0)
    with Store.open(database_url(db)) as store:
        rows = store.page(limit=100_000)
    # Finals repeat after further screening, as a new series.
    screened = [row for row in rows if row.measurement.stage == "screen"]
    places = Counter((row.study_id, row.measurement.config.key, row.measurement.stage) for row in screened)
    return Kept(frozenset(places), sum(times - 1 for times in places.values()))


if __name__ == "__main__":
    as_command(main)
