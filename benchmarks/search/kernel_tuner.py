"""Kernel Tuner's strategies, run by Kernel Tuner itself in its simulation mode on the same data.

Before each run it solves constraints over the product of all knobs to find the configs, which takes a second and gives
the same answer each time. This module caches that answer and changes nothing else.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from unittest import mock

import numpy as np

from benchmarks.search.replay import Replay
from benchmarks.search.setting import Setting

_FOLDER: Final = Path(tempfile.gettempdir()) / "gemmtune-kernel-tuner"
#: Its own method that finds the configs: list, places, count.
_BUILD: Final = "_Searchspace__build_searchspace"
_Space = tuple[list[tuple[Any, ...]], dict[tuple[Any, ...], int], int]
#: The last problem's configs, by its file.
_spaces: dict[Path, _Space] = {}


def kernel_tuner_order(strategy: str) -> Callable[[Replay, Setting, int, int], list[int]]:
    """One of its strategies; the first evaluation of a config counts as a measurement."""

    def order(replay: Replay, setting: Setting, seed: int, most: int) -> list[int]:
        from kernel_tuner import tune_cache

        names, path = _cache_file(replay)
        random.seed(seed)
        np.random.seed(seed)
        with contextlib.redirect_stdout(io.StringIO()), _space_kept(path):
            results, _ = tune_cache(
                str(path), strategy=strategy, strategy_options={"max_fevals": most}, quiet=True, verbose=False
            )
        place = {tuple(config[name] for name in names): row for row, config in enumerate(replay.configs)}
        evaluated = [place[tuple(result[name] for name in names)] for result in results if result]
        return list(dict.fromkeys(evaluated))[:most]

    return order


@contextlib.contextmanager
def _space_kept(path: Path) -> Iterator[None]:
    """Inside, the configs of the cache file at `path` are looked for once."""
    from kernel_tuner.searchspace import Searchspace

    build = getattr(Searchspace, _BUILD)

    def kept(space: Any, *args: Any) -> _Space:  # noqa: ANN401  (an untyped library's)
        if path not in _spaces:
            _spaces.clear()
            _spaces[path] = build(space, *args)
        configs, places, count = _spaces[path]
        return configs.copy(), places.copy(), count

    with mock.patch.object(Searchspace, _BUILD, kept):
        yield


def _cache_file(replay: Replay) -> tuple[list[str], Path]:
    """The replay in Kernel Tuner's cache format; knobs that never vary are left out of the space."""
    values: dict[str, list[Any]] = {}
    for config in replay.configs:
        for name, value in config.values:
            values.setdefault(name, []).append(value)
    names = [name for name, column in values.items() if len(set(column)) > 1]
    problem = replay.problem
    path = _FOLDER / f"{problem.dtype}_{problem.layout}_{problem.shape}_{replay.group.digest[:12]}.json"
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
