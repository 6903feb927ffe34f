"""Replays: recorded problems as finite searches with known answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.command import WrongInput
from space.config import Config
from space.families.common import starts_early
from space.kinds.gemm import Gemm
from space.plug import Family
from space.problem import DTYPE_BYTES
from tuner.prediction.examples import Group, settled
from workers.recording import read_recording

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Replay:
    """One recorded problem.

    Attributes:
        device: GPU model.
        configs: every candidate that was screened.
        time_us: (configs,), from `tuner.prediction.examples.settled`; infinite for failures.
    """

    problem: Gemm
    device: str
    configs: tuple[Config, ...]
    time_us: Floats

    @property
    def best_us(self) -> float:
        """Time of the fastest recorded candidate."""
        return float(self.time_us.min())

    @cached_property
    def group(self) -> Group:
        """The correct candidates, to learn from."""
        correct = np.flatnonzero(np.isfinite(self.time_us))
        return Group(self.problem, self.device, tuple(self.configs[row] for row in correct), self.time_us[correct])

    @cached_property
    def early(self) -> bool:
        """Whether most candidates start early, beside copies of themselves, as in recordings of short products once."""
        return 2 * sum(map(starts_early, self.configs)) > len(self.configs)

    def shares(self, order: Sequence[int], most: int) -> Floats:
        """Share of the exhaustive best after 1 … `most` measurements; the last value repeats."""
        best = np.minimum.accumulate(self.time_us[np.asarray(order[:most], dtype=np.intp)])
        reached = self.best_us / best
        return np.concatenate([reached, np.full(most - len(reached), reached[-1])])


def read_replays(folders: Iterable[Path], family: Family) -> list[Replay]:
    """Every recording of the folders with a correct candidate of the family, in order of its name.

    Raises:
        WrongInput: folders are given, and hold none.
    """
    folders, replays = list(folders), []
    for path in (path for folder in folders for path in sorted(folder.glob("*.parquet"))):
        recording = read_recording(path)
        measured = [m for m in recording.of_policy(recording.screens_under) if m.config.family == family.name]
        configs = tuple(dict.fromkeys(m.config for m in measured if m.stage == "screen"))
        times = settled(measured)
        time_us = np.array([times.get(config, np.inf) for config in configs])
        if isinstance(recording.problem, Gemm) and np.isfinite(time_us).any():
            replays.append(Replay(recording.problem, recording.facts.name, configs, time_us))
    if folders and not replays:
        named = " and ".join(map(str, folders))
        raise WrongInput(f"no recording in {named} has a correct candidate of {family.name}: give another folder")
    return replays


def superseded(replay: Replay, others: Sequence[Replay]) -> bool:
    """Whether another recording has the problem's candidates as they are searched today: none starts early."""
    return replay.early and any(other.problem == replay.problem and not other.early for other in others)


def class_of(problem: Gemm) -> str:
    """The class of a problem's shape; benchmarks hold out whole classes."""
    m, n, k = problem.m, problem.n, problem.k
    row_bytes = (k * DTYPE_BYTES[problem.dtype_a], n * DTYPE_BYTES[problem.dtype_c])
    if any(pitch % 16 for pitch in row_bytes):
        return "odd"
    if min(m, n) <= 128:
        return "decode"
    if k >= 4 * max(m, n):
        return "deep_k"
    if max(m, n) >= 16 * min(m, n):
        return "tall_skinny"
    return "square" if max(m, n, k) <= 1.5 * min(m, n, k) else "prefill"
