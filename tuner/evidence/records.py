"""Studies, stored measurements and bests as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from space.config import Config
from space.problem import Problem
from tuner.errors import StoreError
from workers.measurement import Clocks as Clocks  # these are part of what the API filters by and shows
from workers.measurement import Measurement
from workers.measurement import Outcome as Outcome
from workers.measurement import Policy as Policy
from workers.measurement import Provenance as Provenance
from workers.measurement import Verification as Verification


class StudyStatus(StrEnum):
    """Status of a study. Only `running` ones are resumed automatically."""

    RUNNING = "running"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class StudyKey:
    """What makes two runs the same study, so that the second one resumes the first.

    Attributes:
        policy: of the screenings.
        device: GPU model. `device_kind` is `cuda` or `recorded`: replayed times never mix with a GPU's own.
        family: family of the candidates; several are joined by `+`.
        source: digest over kernel source, driver and library versions.
    """

    problem: Problem
    device: str
    device_kind: str
    policy: Policy
    family: str
    source: str


@dataclass(frozen=True, slots=True)
class StudyRecord:
    """A study as stored."""

    id: int
    key: StudyKey
    status: StudyStatus
    stopped_because: str


@dataclass(frozen=True, slots=True)
class Author:
    """Who reported a measurement: ids of worker, round and token. All None where this process measured."""

    worker_id: int | None = None
    round_id: int | None = None
    token_id: int | None = None

    def __str__(self) -> str:
        ids = {"worker": self.worker_id, "round": self.round_id, "token": self.token_id}
        return ", ".join(f"{name} {number}" for name, number in ids.items() if number is not None) or "this process"


NOBODY: Final = Author()


@dataclass(frozen=True, slots=True)
class StoredMeasurement:
    """A measurement with its study, device, provenance and author.

    Attributes:
        revoked: out of the running: its worker or token was revoked.
    """

    id: int
    study_id: int
    device: str
    device_kind: str
    taken_at: datetime
    provenance: Provenance
    measurement: Measurement
    author: Author = NOBODY
    revoked: bool = False


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times faster than a baseline: baseline time / our time.

    Attributes:
        value: median of the turns' ratios; of an unpaired one, ratio of medians.
        low, high: 95 % interval by bootstrap, at least as wide as what is known of the samples' scatter makes it.
        paired: turn by turn, from turns of one run; an unpaired ratio, of another run or of other numbers of samples,
            carries the drift between them too.
    """

    value: float
    low: float
    high: float
    paired: bool


@dataclass(frozen=True, slots=True)
class Best:
    """The winning measurement of a problem on a device under one policy, with its evidence.

    Attributes:
        winner: a correct measurement of stage `final`.
        versus_first: ratio to cuBLASLt's first choice; None where the library was not measured.
        versus_best: ratio to the fastest of cuBLASLt's candidates.
        runner_up: the fastest other config; None without one.
        tried: candidates that the study had measured.
        failed: number of candidates by outcome, `correct` excluded.
        served: whether it answers questions that name no policy; one of a problem's bests on a device does.
    """

    problem: Problem
    device: str
    device_kind: str
    winner: StoredMeasurement
    versus_first: Ratio | None
    versus_best: Ratio | None
    runner_up: Config | None
    tried: int
    failed: dict[str, int]
    served: bool = True

    @property
    def policy(self) -> Policy:
        """What its time stands for."""
        return self.winner.measurement.policy

    @property
    def config(self) -> Config:
        return self.winner.measurement.config

    @property
    def median_us(self) -> float:
        """Median time of one launch."""
        return self.winner.measurement.median_us

    @property
    def tflops(self) -> float:
        """TFLOP/s at the median."""
        return self.problem.tflops(self.median_us)


@dataclass(frozen=True, slots=True)
class BestChange:
    """One change of a problem's best on a device.

    Attributes:
        measurement_id, config_key, median_us: of the new best; None where the best was removed.
        previous_id, previous_config_key, previous_median_us: of the one before; None for the first.
        reason: why it changed, as a sentence.
    """

    id: int
    policy: Policy
    measurement_id: int | None
    config_key: str | None
    median_us: float | None
    previous_id: int | None
    previous_config_key: str | None
    previous_median_us: float | None
    reason: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Removed:
    """A problem on a device that lost its best: its evidence was revoked, and none remained."""

    problem_key: str
    device: str
    device_kind: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A best that this version of gemmtune can't read, and why."""

    problem_key: str
    device: str
    device_kind: str
    why: StoreError


@dataclass(frozen=True, slots=True)
class Revocation:
    """A decision to trust a worker or a token no longer.

    Attributes:
        worker, token: name of one of them; the other is empty.
        since: only what was stored then or later; None for everything.
        made_by: name of the caller's token.
        measurements: how many it took out of the running.
        bests: problems whose best it replaced or removed.
    """

    id: int
    worker: str
    token: str
    since: datetime | None
    reason: str
    made_by: str
    at: datetime
    measurements: int
    bests: int
