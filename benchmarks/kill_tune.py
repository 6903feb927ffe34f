"""kill -9 in the middle of `gemmtune tune`, again and again: what is kept, what is repeated, what it costs.

    python -m benchmarks.kill_tune 4096x4096x4096 --device recorded:h200 --kills 10 --out benchmarks/results/F.md
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from benchmarks.published import publish
from tuner.errors import StoreError
from tuner.evidence.store import Store
from tuner.settings import database_url

HEADER = "| kill | after s | measurements kept | in a study twice | store opens |\n| --- | --- | --- | --- | --- |"


def main() -> None:
    """Kills, counts, and lets the last run finish."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("shape")
    options.add_argument("--device", default="recorded:h200")
    options.add_argument("--kills", type=int, default=10)
    options.add_argument("--candidates", type=int, default=400)
    options.add_argument("--longest", type=float, default=4.0, help="seconds until a kill, at most")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--out", type=Path)
    given = options.parse_args()
    moments = random.Random(given.seed)
    lines = [HEADER]
    with tempfile.TemporaryDirectory() as folder:
        db = f"{folder}/tune.db"
        command = [sys.executable, "-m", "tuner.cli", "tune", given.shape, "--device", given.device, "--candidates",
                   str(given.candidates), "--db", db]  # fmt: skip
        for kill in range(1, given.kills + 1):
            after = moments.uniform(0.7, given.longest)
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
                time.sleep(after)
                os.kill(process.pid, signal.SIGKILL)
            try:
                kept, twice = count(db)
                lines.append(f"| {kill} | {after:.2f} | {kept} | {twice} | yes |")
            except StoreError as error:
                lines.append(f"| {kill} | {after:.2f} | – | – | NO: {error} |")
            print(lines[-1], flush=True)
        last = subprocess.run(command, check=True, capture_output=True, text=True)
        kept, twice = count(db)
    ending = [line for line in last.stderr.splitlines() if "candidates" in line][-1]
    text = "\n".join([*lines, "", f"The run after the last kill ended by itself: `{ending}`",
                      f"Measurements in the store: {kept}, of which twice in the study: {twice}."])  # fmt: skip
    print(text)
    publish("kill_tune", given.out, text)


def count(db: str) -> tuple[int, int]:
    """Measurements in the store, and how many are of a config and stage that the study has already."""
    with Store.open(database_url(db)) as store:
        kept = store.page(limit=100_000)
        places = Counter((m.study_id, m.measurement.config.key, m.measurement.stage) for m in kept)
        return len(kept), sum(times - 1 for times in places.values())


if __name__ == "__main__":
    main()
