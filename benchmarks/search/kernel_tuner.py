"""Kernel Tuner's strategies, run by Kernel Tuner itself in its simulation mode on the same data."""

from __future__ import annotations

import contextlib
import io
import json
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.search.replay import Replay
from benchmarks.search.setting import Setting

_FOLDER: Final = Path(tempfile.gettempdir()) / "gemmtune-kernel-tuner"


def kernel_tuner_order(strategy: str) -> Callable[[Replay, Setting, int, int], list[int]]:
    """One of its strategies; a measurement is a config that it evaluates for the first time."""

    def order(replay: Replay, setting: Setting, seed: int, most: int) -> list[int]:
        from kernel_tuner import tune_cache

        names, path = _cache_file(replay)
        random.seed(seed)
        np.random.seed(seed)
        with contextlib.redirect_stdout(io.StringIO()):
            results, _ = tune_cache(
                str(path), strategy=strategy, strategy_options={"max_fevals": most}, quiet=True, verbose=False
            )
        place = {tuple(config[name] for name in names): row for row, config in enumerate(replay.configs)}
        evaluated = [place[tuple(result[name] for name in names)] for result in results if result]
        return list(dict.fromkeys(evaluated))[:most]

    return order


def _cache_file(replay: Replay) -> tuple[list[str], Path]:
    """The replay in Kernel Tuner's cache format; knobs that never vary are left out of the space."""
    values: dict[str, list[Any]] = {}
    for config in replay.configs:
        for name, value in config.values:
            values.setdefault(name, []).append(value)
    names = [name for name, column in values.items() if len(set(column)) > 1]
    problem = replay.problem
    path = _FOLDER / f"{replay.problem.dtype}_{problem.layout}_{problem.shape}.json"
    cache: dict[str, dict[str, Any]] = {}
    for config, time_us in zip(replay.configs, replay.time_us, strict=True):
        row: dict[str, Any] = {name: config[name] for name in names}
        cost = time_us / 1e3 if np.isfinite(time_us) else "RuntimeFailedConfig"
        failed = {} if np.isfinite(time_us) else {"__error__": cost}
        cache[",".join(str(value) for value in row.values())] = row | failed | {
            "time": cost, "compile_time": 0, "verification_time": 0, "benchmark_time": 0, "strategy_time": 0,
            "framework_time": 0, "timestamp": "1970-01-01 00:00:00+00:00",
        }  # fmt: skip
    document = {
        "device_name": replay.device, "kernel_name": "gemm", "problem_size": [problem.m, problem.n, problem.k],
        "tune_params_keys": names, "tune_params": {name: sorted(set(values[name])) for name in names},
        "objective": "time", "cache": cache,
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    return names, path
