"""Examples: training data from recordings or the store, one group per problem and run.

Different groups were measured at different temperatures and clocks, so their times are never compared.
"""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from space.config import Config
from space.families.common import unmarked
from space.kind import problem_from_key
from space.plug import Family
from space.problem import Problem
from tuner.evidence.picks import precedence
from tuner.evidence.store import Store
from workers.measurement import SCREENING, Measurement, Outcome
from workers.recording import read_recording

#: Fewest correct candidates of a group; fewer say nothing about differences between candidates.
LEAST_CANDIDATES: Final = 8


@dataclass(frozen=True)
class Group:
    """Correct candidates of one problem, measured in one run.

    Attributes:
        device: GPU model.
        configs: distinct.
        time_us: (configs,), all on one scale (`settled`).
        served_us: of finalists, under the policy that decides what is served; empty where none was timed under it.
    """

    problem: Problem
    device: str
    configs: tuple[Config, ...]
    time_us: npt.NDArray[np.float64]
    served_us: Mapping[Config, float] = field(default_factory=dict)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the problem, the device, the configs and all times."""
        lines = sorted(f"{config.key} {time:.6g}" for config, time in zip(self.configs, self.time_us, strict=True))
        lines += sorted(f"served {config.key} {time:.6g}" for config, time in self.served_us.items())
        return hashlib.sha256("\n".join([self.problem.key, self.device, *lines]).encode()).hexdigest()


def from_recordings(folder: Path, family: Family) -> list[Group]:
    """One group per recording in `folder`, of what was measured under the policy of its screenings.

    Raises:
        RecordingError: a file can't be read.
    """
    groups = []
    for path in sorted(folder.glob("*.parquet")):
        recording = read_recording(path)
        measured = recording.of_policy(recording.screens_under)
        problem, device = recording.problem, recording.facts.name
        groups.append(_group(problem, device, measured, family, recording.of_policy(precedence(problem, device)[0])))
    return [group for group in groups if len(group.configs) >= LEAST_CANDIDATES]


def from_store(store: Store, device: str, family: Family) -> list[Group]:
    """One group per study that ran on a GPU of this model; replays of recordings are skipped."""
    studies: dict[tuple[str, int], list[Measurement]] = {}
    for stored in store.every(device):
        if stored.device_kind != "recorded":
            studies.setdefault((stored.measurement.problem_key, stored.study_id), []).append(stored.measurement)
    groups = []
    for (key, _), taken in studies.items():
        problem = problem_from_key(key)
        served, screened = precedence(problem, device)[0], [one for one in taken if one.policy is SCREENING]
        groups.append(_group(problem, device, screened, family, [one for one in taken if one.policy is served]))
    return [group for group in groups if len(group.configs) >= LEAST_CANDIDATES]


def settled(measured: Iterable[Measurement]) -> dict[Config, float]:
    """A time for each correct candidate of one run, in microseconds.

    A finalist gets its final median, scaled to screening by the finalists' median ratio, because finals run warmer and
    at lower clocks. Other candidates keep their screening median. Screening is short and, at the power limit, noisy:
    without finals the fastest candidate is often just the luckiest. What was wrong in the finals has none: it may be
    fast because it skips a wait.
    """
    measured = list(measured)
    wrong = {m.config for m in measured if m.outcome is Outcome.WRONG_RESULT}
    correct = [m for m in measured if m.outcome is Outcome.CORRECT and m.config not in wrong]
    screened = {m.config: m.median_us for m in correct if m.stage == "screen"}
    final = {m.config: m.median_us for m in correct if m.stage == "final" and m.config in screened}
    if not final:
        return screened
    usual = statistics.median(screened[config] / time for config, time in final.items())
    return screened | {config: time * usual for config, time in final.items()}


def digest_of(groups: Sequence[Group]) -> str:
    """SHA-256 of a set of groups, independent of their order."""
    return hashlib.sha256("\n".join(sorted(group.digest for group in groups)).encode()).hexdigest()


def _group(
    problem: Problem, device: str, measured: Sequence[Measurement], family: Family, served: Sequence[Measurement]
) -> Group:  # fmt: skip
    """One group; it keeps correct candidates even if newer rules forbid them.

    Args:
        served: what was measured under the policy that decides.
    """
    times = _unmarked(settled(each for each in measured if each.config.family == family.name))
    finals = _unmarked({
        one.config: one.median_us for one in served
        if one.stage == "final" and one.outcome is Outcome.CORRECT and one.config.family == family.name
    })  # fmt: skip
    finals = {config: time for config, time in finals.items() if config in times}
    return Group(problem, device, tuple(times), np.array(list(times.values())), finals)


def _unmarked(times: Mapping[Config, float]) -> dict[Config, float]:
    """The times, as those of configs that mark no weights; of two that become one, the shorter.

    Recordings were made among copies of three to four times L2, where a mark gained what it had kept of them from one
    launch to the next on the same copy.
    """
    found: dict[Config, float] = {}
    for config, time in times.items():
        bare = unmarked(config)
        found[bare] = min(time, found.get(bare, time))
    return found
