"""Measures the cost of search and model: one proposal, loading, a predicted answer in process and over HTTP.

python -m benchmarks.search_costs --out benchmarks/results/search_costs.md
"""

from __future__ import annotations

import argparse
import http.client
import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.command import as_command
from benchmarks.published import add_out, publish
from benchmarks.serving import serving
from space.devices import DEFAULT_DEVICE, profile_named
from space.family import family_named
from space.kinds.gemm import Gemm
from tuner.evidence.store import Store
from tuner.prediction import files
from tuner.prediction.expectation import Expectation
from tuner.prediction.portfolio import first_choice
from tuner.studying.order import Order
from tuner.studying.screening import LARGEST_BATCH

CANDIDATES, TRIALS, FEATURES = 100_000, 1_000, 40
SHAPES = 300
FAMILY = family_named("sm90_wgmma")


def main() -> None:
    """Prints the table and writes it with its command."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_out(options)
    given = options.parse_args()
    path = files.SHIPPED / files.file_name(DEFAULT_DEVICE)
    model = files.load(path)
    asked = [_problem(seed) for seed in range(SHAPES)]
    about = _about()
    rows = [
        ("bytes of the model", f"{path.stat().st_size:,}"),
        ("loading and checking it, ms", _told([_timed(lambda: files.load(path).check()) for _ in range(20)])),
        (f"a predicted answer in process, ms ({SHAPES} shapes)",
         _told([_timed(partial(first_choice, model, problem, profile_named(DEFAULT_DEVICE))) for problem in asked])),
        (f"a predicted answer of a service over HTTP, ms ({SHAPES} shapes, none asked twice)",
         _told(list(_over_http(asked)))),
        *_proposals(),
    ]  # fmt: skip
    lines = [f"| {name} | {value} |" for name, value in (("cost", "median / 95th percentile"), ("---", "---:"), *rows)]
    print(about, *lines, sep="\n")
    publish("search_costs", given.out, about, "\n".join(lines))


def _proposals() -> Iterator[tuple[str, str]]:
    """A study with made-up times, which do not affect the time of a proposal."""
    rng = np.random.default_rng(0)
    values = list({tuple(knob.domain[int(rng.integers(len(knob.domain)))] for knob in FAMILY.knobs)
                   for _ in range(CANDIDATES + CANDIDATES // 10)})[:CANDIDATES]  # fmt: skip
    names = [knob.name for knob in FAMILY.knobs]
    configs = [FAMILY.config(dict(zip(names, row, strict=True))) for row in values]
    features = rng.standard_normal((CANDIDATES, FEATURES))
    truth = features @ rng.standard_normal(FEATURES) * 0.05
    place_of = {config: place for place, config in enumerate(configs)}
    order = Order(configs, Expectation(features, truth + 0.1 * rng.standard_normal(CANDIDATES), 0.1))
    batches: list[float] = []
    while len(batches) < TRIALS // LARGEST_BATCH + 16:
        started = time.perf_counter()
        for config in order.take(LARGEST_BATCH):
            order.tell(config, math.exp(truth[place_of[config]]))
        batches.append((time.perf_counter() - started) / LARGEST_BATCH * 1e3)
    late = batches[TRIALS // LARGEST_BATCH :]
    label = f"{CANDIDATES:,} candidates, {TRIALS:,} past trials, mean over each batch of {LARGEST_BATCH}"
    yield f"one proposal and telling its result, ms ({label})", _told(late)


def _over_http(asked: list[Gemm]) -> Iterator[float]:
    """Requests to a service in its own process, over one connection.

    The client is minimal, because the time of a comfortable client is not the service's.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        Store.open(f"sqlite:///{folder / 's.db'}").close()
        with serving(folder, folder / "s.db", auth="off") as running:
            line = http.client.HTTPConnection("127.0.0.1", running.port)
            # The first answers open the connection and trigger imports.
            for problem in (Gemm(m, 4096, 4096) for m in (3, 5, 7)):
                _asked(line, problem)
            for problem in asked:
                before = time.perf_counter()
                answer = _asked(line, problem)
                yield (time.perf_counter() - before) * 1e3
                assert json.loads(answer)["source"] == "predicted", answer
            line.close()


def _asked(line: http.client.HTTPConnection, problem: Gemm) -> bytes:
    line.request("GET", f"/v1/best?m={problem.m}&n={problem.n}&k={problem.k}")
    return line.getresponse().read()


def _problem(seed: int) -> Gemm:
    """A shape between a single row and a training batch, in steps of 8."""
    rng = np.random.default_rng(seed)
    m = max(int(2 ** rng.uniform(0, 14)), 1)
    return Gemm(m, 8 * int(2 ** rng.uniform(5, 12)), 8 * int(2 ** rng.uniform(4, 11)))


def _timed(work: Callable[[], object]) -> float:
    before = time.perf_counter()
    work()
    return (time.perf_counter() - before) * 1e3


def _told(times_ms: list[float]) -> str:
    return f"{statistics.median(times_ms):.2f} / {float(np.quantile(times_ms, 0.95)):.2f}"


def _about() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    kind = names[0] if names else "an unknown kind"
    others = f"load average {os.getloadavg()[0]:.1f}, niceness {os.nice(0)}"
    return f"{len(names)} processors of {kind}, NumPy {np.__version__}, {others}"


if __name__ == "__main__":
    as_command(main)
