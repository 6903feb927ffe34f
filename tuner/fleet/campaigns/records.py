"""Campaigns, workers and rounds as plain values."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final, Literal

from space.config import Config
from space.errors import ProblemError
from space.problem import Problem
from tuner.evidence.records import Ratio
from tuner.fleet.campaigns.gain import Gain, Won
from tuner.fleet.campaigns.names import wrong_name
from tuner.studying.records import FINALISTS, Budget, Trial
from tuner.tables.problems import MOST_COUNT
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
    """Status of a campaign. `running` and `paused` may change; the others are final."""

    RUNNING = "running"
    PAUSED = "paused"
    CANCELLED = "cancelled"
    FINISHED = "finished"


class ProblemStatus(StrEnum):
    """Status of one problem of a campaign on one device; the last three are final."""

    #: It waits for a worker.
    WAITING = "waiting"
    #: A round of it is running.
    OPEN = "open"
    #: It has a best.
    DONE = "done"
    #: It cannot be tuned; `CampaignProblem.reason` says why.
    PARKED = "parked"
    #: The campaign ended before its turn.
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class CampaignBudget:
    """When a campaign stops.

    Attributes:
        candidates: most candidates screened per problem, including those of earlier studies.
        rounds: fewest turns that each problem's finalists take under `chain`, where it decides; stores and JSON have
            this name.
        target: screening of a problem stops at this share of its roofline bound; None for no target.
        gpu_seconds: total of all workers; when spent, started problems get their finals and the others are
            skipped. None for no limit.
    """

    candidates: int = 96
    rounds: int = 30
    target: float | None = None
    gpu_seconds: float | None = None

    def __post_init__(self) -> None:
        self.of_problem()
        if self.gpu_seconds is not None and not 0 < self.gpu_seconds < math.inf:
            raise ProblemError(f"gpu_seconds = {self.gpu_seconds} is not a budget: give a positive number")

    def of_problem(self, closing_after: int | None = None) -> Budget:
        """The budget of one problem's study.

        Args:
            closing_after: candidates already screened; the study screens no more than these.
        """
        candidates = self.candidates if closing_after is None else max(closing_after, 1)
        return Budget(candidates, None, self.rounds, self.target)


@dataclass(frozen=True, slots=True)
class CampaignRequest:
    """A campaign to be created.

    Attributes:
        problems: distinct.
        devices: GPU models, each with its kind: `cuda`, or `recorded` for replays.
        priority: -100 … 100; higher ones go first.
        counts: how often each problem runs in the program that is tuned; empty if nobody knows. Problems with counts go
            in the order of what tuning may gain.
    """

    name: str
    problems: tuple[Problem, ...]
    devices: tuple[tuple[str, str], ...]
    budget: CampaignBudget = CampaignBudget()
    priority: int = 0
    counts: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if wrong := wrong_name(self.name, MOST_NAME):
            raise ProblemError(wrong)
        if self.counts and (
            len(self.counts) != len(self.problems) or min(self.counts) < 1 or max(self.counts) > MOST_COUNT
        ):
            raise ProblemError(f"counts must be 1 to {MOST_COUNT:,}, one for each problem")
        if self.priority not in PRIORITIES:
            raise ProblemError(f"priority = {self.priority}: give {PRIORITIES.start} to {PRIORITIES.stop - 1}")
        for kind, entries in (("problem", self.problems), ("device", self.devices)):
            if not entries:
                raise ProblemError(f"a campaign needs at least one {kind}")
            if len(set(entries)) != len(entries):
                raise ProblemError(f"a {kind} is listed twice: list each once")


@dataclass(frozen=True, slots=True)
class Campaign:
    """A campaign as stored."""

    id: int
    name: str
    status: CampaignStatus
    stopped_because: str
    priority: int
    budget: CampaignBudget
    created_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class CampaignProblem:
    """One problem of a campaign on one device.

    Attributes:
        attempts: rounds that failed, or ended with nothing correct, since the last that did better.
        reason: why it ended as it did; empty until then.
        failing_config: key of the candidate that makes every round with it fail; empty where none was found.
        rounds, tried, gpu_seconds: totals so far; `tried` includes earlier studies.
        failed: number of candidates by outcome, `correct` excluded.
        measurement_id: the winner's; None unless done.
        note: the winner's; of a replay it says when the GPU measured, and by which kernel source.
        count: how often the problem runs in the program that is tuned; 1 if nobody knows.
        revoked: the winner is out of the running; what is served is another one, if anything.
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
    note: str = ""
    count: int = 1
    revoked: bool = False


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker as the service sees it.

    Attributes:
        status: `live`; `draining`, which gets no more rounds; `gone`.
        beat_at: its last heartbeat.
        busy_seconds, rounds: totals over its finished rounds.
        round_id: the round that it runs; None when idle.
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


def slot_of(name: str, facts: DeviceFacts) -> str:
    """What only one live worker has: its GPU, or on a recorded device its name."""
    return f"gpu:{facts.uuid}" if facts.kind == "cuda" else f"recorded:{name}"


@dataclass(frozen=True, slots=True)
class Registration:
    """Reply to a worker that registers.

    Attributes:
        heartbeat_seconds: interval at which it must send heartbeats.
        progress: whether heartbeats may carry the progress of a round; older services refuse it.
    """

    worker_id: int
    heartbeat_seconds: float
    progress: bool = True


@dataclass(frozen=True, slots=True)
class RoundTask:
    """Reply to a claim: the round that the worker now holds.

    Attributes:
        lease: proves that the caller holds the round; every later call about it carries the lease.
        problem_key: `Problem.key`.
        candidates, rounds, target: the study's budget; `rounds` are the turns of its finals.
        seconds: after this time no further batch starts.
        only: keys of the only candidates to measure, because an earlier round with them failed; empty for all.
        finalists: how many enter the finals.
        slot: of the worker that holds the round; empty from older services. Where it is another's, that worker has got
            the caller's number: the store was replaced by an empty or a restored one.
    """

    round_id: int
    lease: str
    problem_key: str
    candidates: int
    rounds: int
    target: float | None
    seconds: float
    only: tuple[str, ...] = ()
    finalists: int = FINALISTS
    slot: str = ""

    @property
    def budget(self) -> Budget:
        """The study's budget."""
        return Budget(self.candidates, None, self.rounds, self.target)


@dataclass(frozen=True, slots=True)
class StudyHistory:
    """What the round's study already knows.

    Attributes:
        tried: every screened candidate.
        finals_done: nothing was screened since the last finals, and rules allow some of ours in them.
        winners: configs that won on similar problems, most similar first.
    """

    study_id: int
    tried: tuple[Trial, ...]
    finals_done: bool
    winners: tuple[Config, ...] = ()


@dataclass(frozen=True, slots=True)
class RoundReport:
    """A worker's report of a round.

    Attributes:
        measurements: screened candidates, then finals.
        provenance: the one that the round began with; None if it failed earlier.
        busy_seconds: time spent on the device.
        ended: why the study is complete, as a sentence; empty if another round should continue it.
        failure: why the round could not continue; empty if it could. Earlier measurements count.
        hopeless: another attempt would fail in the same way.
        handed_back: the worker was told to stop, so measuring little or nothing does not count against the problem.
    """

    measurements: tuple[Measurement, ...] = ()
    provenance: Provenance | None = None
    busy_seconds: float = 0.0
    ended: str = ""
    failure: str = ""
    hopeless: bool = False
    handed_back: bool = False


@dataclass(frozen=True, slots=True)
class RoundProgress:
    """How far a running round has come; its worker's heartbeats carry it.

    Attributes:
        tried: candidates measured in this round.
        best_us: the study's fastest correct screening so far; None before the first.
    """

    stage: Stage
    tried: int
    best_us: float | None


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """Reply to a heartbeat.

    Attributes:
        stop: end the round now; what was measured may still be reported.
        drain: finish the round, claim no other, and leave.
    """

    stop: bool = False
    drain: bool = False


@dataclass(frozen=True, slots=True)
class Timing:
    """Intervals and limits of a fleet.

    Attributes:
        heartbeat_seconds: between two heartbeats of a worker.
        round_seconds: after this time a round starts no further batch.
        attempts: consecutive failed rounds after which a problem is parked.
        keep_days: ended rounds, workers that are gone, and builds are deleted after this; measurements never are.
    """

    heartbeat_seconds: float = 5.0
    round_seconds: float = 20.0
    attempts: int = 3
    keep_days: float = 90.0

    @property
    def silence_seconds(self) -> float:
        """Silence after which a worker counts as gone: two heartbeats and some latency."""
        return 2 * self.heartbeat_seconds + min(1.0, self.heartbeat_seconds / 2)


#: The defaults.
TIMING: Final = Timing()


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a campaign has come.

    Attributes:
        problems: number by status.
        tried: candidates screened; `most_candidates` is an upper bound on it.
        failed: number of candidates by outcome, `correct` excluded.
        gpu_seconds: spent so far.
        workers: live workers of its queues.
        rounds_running: now.
        candidates_a_second: rate of all workers over recent rounds; None before the first.
        seconds_left: estimated from that rate; None without one.
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
class Summary:
    """A campaign's results.

    Attributes:
        gain: None while no problem has a baseline.
        failed: number of candidates by outcome, `correct` excluded.
        parked: number of problems by reason, shortened to its first clause.
        library_won: problems whose best is one of cuBLASLt's own candidates; `gain` leaves them out.
        replayed: problems whose times were replayed from a recording.
        won: None while no problem has a baseline, or if no counts were given.
        revoked: problems whose winner was revoked; `gain`, `won` and `library_won` leave them out.
    """

    progress: Progress
    gain: Gain | None
    failed: dict[str, int]
    parked: dict[str, int] = field(default_factory=dict)
    library_won: int = 0
    replayed: int = 0
    won: Won | None = None
    revoked: int = 0
