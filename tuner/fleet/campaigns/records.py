"""What campaigns, workers and rounds are to their callers, as plain values; those of rounds travel as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final, Literal

from space.config import Config
from space.errors import ProblemError
from space.problem import Problem
from tuner.evidence.records import Ratio
from tuner.studying.screening import FINALISTS, Budget, Tried
from workers.measurement import Clocks as Clocks  # what reports are made of
from workers.measurement import DeviceFacts as DeviceFacts
from workers.measurement import Measurement as Measurement
from workers.measurement import Outcome as Outcome
from workers.measurement import Policy as Policy
from workers.measurement import Provenance as Provenance
from workers.measurement import Stage as Stage
from workers.measurement import Verification as Verification

MOST_NAME: Final = 200
PRIORITIES: Final = range(-100, 101)


class CampaignStatus(StrEnum):
    """Where a campaign stands. `running` and `paused` may change; the others are final."""

    RUNNING = "running"
    PAUSED = "paused"
    CANCELLED = "cancelled"
    FINISHED = "finished"


class ProblemStatus(StrEnum):
    """Where one problem of a campaign stands on one device; the last three are final."""

    WAITING = "waiting"
    #: It has a round that is queued or running.
    OPEN = "open"
    #: It has a best.
    DONE = "done"
    #: It can't be tuned, for a reason that is told.
    PARKED = "parked"
    #: The campaign ended before its turn.
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class CampaignBudget:
    """When a campaign stops.

    Attributes:
        candidates: most that are screened of each problem; earlier studies of it count.
        rounds: interleaved rounds of each problem's finals.
        target: a problem is done screening at this share of its roofline bound; None for no target.
        gpu_seconds: of all workers together; when they are spent, problems that were begun get their finals
            and the others are skipped. None for no limit.
    """

    candidates: int = 96
    rounds: int = 30
    target: float | None = None
    gpu_seconds: float | None = None

    def __post_init__(self) -> None:
        self.of_problem()
        if self.gpu_seconds is not None and not 0 < self.gpu_seconds < math.inf:
            raise ProblemError(f"gpu_seconds = {self.gpu_seconds} is no budget: give a positive number")

    def of_problem(self, closing_after: int | None = None) -> Budget:
        """The budget of one problem's study.

        Args:
            closing_after: nothing more is screened than this many, which were already.
        """
        candidates = self.candidates if closing_after is None else max(closing_after, 1)
        return Budget(candidates, None, self.rounds, self.target)


@dataclass(frozen=True, slots=True)
class CampaignRequest:
    """What somebody asks for.

    Attributes:
        problems: without repeats.
        devices: GPU models, each with its kind: `cuda`, or `recorded` for replays.
        priority: higher ones are served first; within -100 … 100.
    """

    name: str
    problems: tuple[Problem, ...]
    devices: tuple[tuple[str, str], ...]
    budget: CampaignBudget = CampaignBudget()
    priority: int = 0
    policy: Policy = Policy.COLD_GRAPH

    def __post_init__(self) -> None:
        if not 1 <= len(self.name) <= MOST_NAME or not self.name.isprintable():
            raise ProblemError(f"name {self.name[:80]!r} is none: give 1 to {MOST_NAME} printable characters")
        if self.priority not in PRIORITIES:
            raise ProblemError(f"priority = {self.priority}: give {PRIORITIES.start} to {PRIORITIES.stop - 1}")
        for kind, entries in (("problem", self.problems), ("device", self.devices)):
            if not entries:
                raise ProblemError(f"a campaign needs at least one {kind}")
            if len(set(entries)) != len(entries):
                raise ProblemError(f"a {kind} is named twice: name each once")


@dataclass(frozen=True, slots=True)
class Campaign:
    """A campaign as stored."""

    id: int
    name: str
    status: CampaignStatus
    stopped_because: str
    priority: int
    policy: Policy
    budget: CampaignBudget
    created_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class CampaignProblem:
    """One problem of a campaign on one device.

    Attributes:
        attempts: rounds in a row that ended badly.
        reason: why it ended as it did; empty while it has not.
        failing_config: key of the candidate that ends every round it is in; empty where none was found.
        rounds, tried, gpu_seconds: what it took so far; `tried` counts earlier studies too.
        failed: candidates that did not end `correct`, by outcome.
        measurement_id: the winner's; None unless done.
    """

    id: int
    campaign_id: int
    problem: Problem
    device: str
    device_kind: str
    status: ProblemStatus
    attempts: int
    reason: str
    failing_config: str
    rounds: int
    tried: int
    failed: dict[str, int]
    gpu_seconds: float
    measurement_id: int | None
    config_key: str
    median_us: float | None
    versus_first: Ratio | None
    versus_best: Ratio | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker as the service sees it.

    Attributes:
        status: `live`; `draining`, when it gets no more rounds; `gone`.
        busy_seconds, rounds: of the rounds that it finished.
        round_id: of the round that it runs; None when idle.
    """

    id: int
    name: str
    queue: str
    device: str
    device_kind: str
    device_uuid: str
    driver: str
    status: Literal["live", "draining", "gone"]
    gone_because: str
    registered_at: datetime
    beat_at: datetime
    rounds: int
    busy_seconds: float
    round_id: int | None


# ------------------------------------------------------------------------------------------------ rounds


@dataclass(frozen=True, slots=True)
class Registration:
    """What a worker is told when it registers.

    Attributes:
        heartbeat_seconds: how often it has to be heard.
    """

    worker_id: int
    heartbeat_seconds: float


@dataclass(frozen=True, slots=True)
class RoundTask:
    """A round that a worker holds from now on.

    Attributes:
        lease: proves that it is the holder; every later word about the round carries it.
        problem_key: `Problem.key`.
        candidates, rounds, target: the study's budget (see `tuner.studying.screening.Budget`).
        seconds: after these no further batch is begun.
        only: keys of the candidates to measure, and no others: an earlier round with them ended badly.
        finalists: how many go into the finals.
    """

    round_id: int
    lease: str
    problem_key: str
    policy: Policy
    candidates: int
    rounds: int
    target: float | None
    seconds: float
    only: tuple[str, ...] = ()
    finalists: int = FINALISTS

    @property
    def budget(self) -> Budget:
        """The study's budget."""
        return Budget(self.candidates, None, self.rounds, self.target)


@dataclass(frozen=True, slots=True)
class StudyHistory:
    """What the round's study knows already.

    Attributes:
        study_id: the study.
        tried: everything screened.
        finals_done: nothing was screened since its last finals.
        winners: configs that won on similar problems, most similar first.
    """

    study_id: int
    tried: tuple[Tried, ...]
    finals_done: bool
    winners: tuple[Config, ...] = ()


@dataclass(frozen=True, slots=True)
class Announcement:
    """Candidates that are about to be measured: the suspects if the worker is not heard of again."""

    stage: Stage
    configs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RoundReport:
    """How a round ended, told by its worker.

    Attributes:
        measurements: screened ones, then finals.
        provenance: as the round was begun with; None when it did not get that far.
        busy_seconds: spent on the device.
        ended: why the study is at its end, as a sentence; empty when another round is to go on.
        failure: why the round could not go on; empty when it could. What was measured before counts.
        hopeless: another try would fail in the same way.
        handed_back: the worker was told to stop; that it measured little or nothing is no fault of the problem.
    """

    measurements: tuple[Measurement, ...] = ()
    provenance: Provenance | None = None
    busy_seconds: float = 0.0
    ended: str = ""
    failure: str = ""
    hopeless: bool = False
    handed_back: bool = False


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """What a heartbeat is answered with.

    Attributes:
        stop: the round is not wanted any more; what was measured may still be reported.
        drain: finish the round, take no more, and go.
    """

    stop: bool = False
    drain: bool = False


@dataclass(frozen=True, slots=True)
class Timing:
    """How fast silence is noticed and how long things take.

    Attributes:
        heartbeat_seconds: between two signs of life of a worker.
        round_seconds: after these a round begins no further batch.
        attempts: rounds in a row that may end badly before a problem is parked.
        window: most queued rounds a queue; the backlog waits in `campaign_problem`.
    """

    heartbeat_seconds: float = 5.0
    round_seconds: float = 20.0
    attempts: int = 3
    window: int = 256

    @property
    def silence_seconds(self) -> float:
        """After these a worker counts as gone: two heartbeats and a little for the road."""
        return 2 * self.heartbeat_seconds + min(1.0, self.heartbeat_seconds / 2)


#: What holds unless somebody says otherwise.
TIMING: Final = Timing()


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a campaign stands.

    Attributes:
        problems: by status.
        tried: candidates, and `most_candidates`, an upper bound on them.
        failed: candidates by outcome.
        gpu_seconds: spent.
        workers: that could take its rounds now.
        rounds_running: right now.
        candidates_a_second: over its recent rounds, all workers together; None before the first.
        seconds_left: expected from that rate; None where there is none.
    """

    campaign: Campaign
    problems: dict[str, int]
    tried: int
    most_candidates: int
    failed: dict[str, int]
    gpu_seconds: float
    workers: int
    rounds_running: int
    candidates_a_second: float | None
    seconds_left: float | None


@dataclass(frozen=True, slots=True)
class Gain:
    """What a campaign gained over cuBLASLt's first choice, over the problems that have both.

    Attributes:
        problems: how many.
        geometric_mean: of the ratios of times, library over ours.
        faster, tied, slower: counts; tied is when the 95 % interval holds 1.
        least, most: of the ratios.
    """

    problems: int
    geometric_mean: float
    faster: int
    tied: int
    slower: int
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class Summary:
    """What a campaign came to.

    Attributes:
        gain: None while no problem has a baseline.
        failed: candidates by outcome.
        parked: problems by reason, shortened to its first clause.
    """

    progress: Progress
    gain: Gain | None
    failed: dict[str, int]
    parked: dict[str, int] = field(default_factory=dict)


def gain_of(ratios: Sequence[Ratio]) -> Gain | None:
    """The gain over these ratios; None when there are none."""
    if not ratios:
        return None
    values = [ratio.value for ratio in ratios]
    return Gain(
        len(values),
        math.exp(sum(map(math.log, values)) / len(values)),
        sum(ratio.low > 1 for ratio in ratios),
        sum(ratio.low <= 1 <= ratio.high for ratio in ratios),
        sum(ratio.high < 1 for ratio in ratios),
        min(values),
        max(values),
    )
