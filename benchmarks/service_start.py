"""Start and memory of a service with many bests: time until it is ready, its memory, and its first answers.

python -m benchmarks.service_start --bests 100000
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import psutil
from fastapi.testclient import TestClient

from api.app import create_app
from benchmarks.service_table import DEVICE, fill
from tuner.evidence.store import Store

_MOST_SECONDS = 300.0


def measure(url: str) -> str:
    """One line on a service in this process on a filled store."""
    with Store.open(url) as store:
        began = time.perf_counter()
        app = create_app(store)
        with TestClient(app) as client:
            assert app.state.follower.loaded.wait(_MOST_SECONDS), "it was never ready"
            ready = time.perf_counter() - began
            memory = psutil.Process().memory_info().rss
            began = time.perf_counter()
            page = client.get("/v1/bests", params={"device": DEVICE})
            first_page = time.perf_counter() - began
            assert page.status_code == 200, page.text
            count = client.get("/readyz").json()["bests"]
    return f"{count:,} bests: ready after {ready:.1f} s, {memory / 1e6:.0f} MB, first page {first_page * 1e3:.0f} ms"


def main() -> None:
    """Fills a store, unless one is given, and measures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bests", type=int, default=100_000)
    parser.add_argument("--db", help="a filled store; filling one with a million bests takes minutes")
    options = parser.parse_args()
    if options.db:
        print(measure(options.db))
        return
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder)}/store.db"
        with Store.open(url) as store:
            fill(store, options.bests)
        # In this process, so the memory of filling counts: give --db for a clean number.
        print(measure(url))


if __name__ == "__main__":
    main()
