"""Fakes for campaign tests: a device that measures instantly, and a worker that tests drive step by step."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Self

import uvicorn
from sqlalchemy import select, text

from api.app import create_app
from api.server import listen
from benchmarks.ports import free_port
from space.config import Config
from space.family import family_named
from space.kind import problem_from_key
from space.kinds.gemm import Gemm
from tests.support import FACTS, PROVENANCE, measured
from tuner.evidence.campaign_models import WorkerRow
from tuner.evidence.store import Store
from tuner.fleet.campaigns import results
from tuner.fleet.campaigns.campaigns import Campaigns
from tuner.fleet.campaigns.records import (
    Campaign,
    CampaignBudget,
    CampaignRequest,
    RoundReport,
    RoundTask,
    Timing,
)
from tuner.fleet.campaigns.rounds import Rounds
from tuner.fleet.campaigns.sweep import Maintenance, Sweeper
from tuner.fleet.campaigns.workers import Workers
from tuner.studying.candidates import candidates_for
from tuner.studying.screening import Search
from workers.measurement import SCREENING, DeviceFacts, Measurement, Outcome, Program, Provenance
from workers.ports import More, Round, Worker, no_more

PROBLEMS = tuple(Gemm.parse(f"{m}x256x256") for m in (64, 128, 192, 256, 320, 384))
QUEUE = "NVIDIA H200/sm_90a/cuda"
#: For manual workers: none is silent until the test advances the clock.
BY_HAND = Timing(heartbeat_seconds=60.0, round_seconds=60.0)
#: For real workers: load on the machine must not make them look dead or cut a round short.
CALM = Timing(heartbeat_seconds=4.0, round_seconds=60.0)
#: For workers that must look dead.
HASTY = Timing(heartbeat_seconds=0.5, round_seconds=2.0)


def facts(number: int = 0) -> DeviceFacts:
    """One of several GPUs."""
    return replace(FACTS, uuid=f"GPU-{number}")


class FakeDevice:
    """A device that measures instantly; configs with larger keys are slower; `crash` selects configs that kill it."""

    def __init__(self, number: int = 0, crash: Callable[[Config], bool] = lambda config: False) -> None:
        self.facts, self._crash = facts(number), crash
        self.closed = False

    def measurable(self, problem: Gemm) -> None:
        return None

    def program(self, problem: Gemm) -> Program:
        return PROVENANCE.program

    def begin(self, problem: Gemm) -> Round:
        return FakeRound(problem, provenance(int(self.facts.uuid.removeprefix("GPU-"))), self._crash)

    def close(self) -> None:
        self.closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Crash(Exception):
    """Death of the process that runs a round."""


class FakeRound:
    """See `FakeDevice`."""

    policy = SCREENING

    def __init__(self, problem: Gemm, provenance: Provenance, crash: Callable[[Config], bool]) -> None:
        self._problem, self.provenance, self._crash = problem, provenance, crash

    def screen(self, candidates: Sequence[Config], more: More = no_more) -> Iterator[Measurement]:
        for config in candidates:
            if self._crash(config):
                raise Crash(config.key)
            yield measured(config, time_of(config), self._problem)

    def finals(self, finalists: Sequence[Config], turns: int) -> tuple[Measurement, ...]:
        library = [family_named("cublaslt").config({"rank": rank}) for rank in (0, 3)]
        ours = [measured(config, time_of(config), self._problem, "final", samples=11) for config in finalists]
        return (*ours, *(measured(config, 40.0, self._problem, "final", samples=11) for config in library))


def provenance(number: int = 0) -> Provenance:
    """Provenance on one of several GPUs."""
    return replace(PROVENANCE, device_uuid=f"GPU-{number}")


def time_of(config: Config) -> float:
    """A time that depends on the config alone."""
    return 20.0 + sum(knob if isinstance(knob, int) else len(knob) for knob in config.knobs.values()) / 100


def finals_in(store: Store) -> int:
    """Measurements of finals: fewer of a problem whose candidates have fewer structures."""
    return sum(len(store.final_series(best.winner.study_id)) for best in store.bests() if best.served)


class Hand:
    """A manual worker: the test calls each step."""

    def __init__(self, fleet: Fleet, number: int = 0, name: str = "") -> None:
        self._fleet, self.number = fleet, number
        self.device: Worker = FakeDevice(number)
        self.id = fleet.workers.register(name or f"worker-{number}", facts(number)).worker_id

    def claim(self) -> RoundTask | None:
        return self._fleet.rounds.claim(self.id)

    def claimed(self) -> RoundTask:
        task = self.claim()
        assert task is not None
        return task

    def begin(self, task: RoundTask) -> Search:
        past = self._fleet.rounds.begin(task.round_id, task.lease, provenance(self.number))
        problem = problem_from_key(task.problem_key)
        candidates = candidates_for(problem, self.device)
        return Search(problem, self.device.facts.name, candidates, task.budget, past.tried)

    def announce(self, task: RoundTask, configs: Sequence[Config], stage: str = "screen") -> None:
        keys = [config.key for config in configs]
        self._fleet.rounds.announce(task.round_id, task.lease, stage, keys)  # type: ignore[arg-type]

    def report(self, task: RoundTask, measurements: Sequence[Measurement] = (), **rest: object) -> None:
        report = RoundReport(tuple(measurements), provenance(self.number), 0.0, **rest)  # type: ignore[arg-type]
        self._fleet.rounds.finish(task.round_id, task.lease, report)

    def work(self, task: RoundTask) -> list[Config]:
        """Runs a whole round: screens the whole budget, then the finals."""
        search = self.begin(task)
        problem = problem_from_key(task.problem_key)
        taken: list[Measurement] = []
        while batch := search.propose():
            self.announce(task, batch)
            for config in batch:
                measurement = measured(config, time_of(config), problem)
                search.tell(measurement)
                taken.append(measurement)
        finals = FakeRound(problem, provenance(self.number), lambda _: False).finals(search.finalists(), 11)
        self.report(task, [*taken, *finals], ended=search.ended)
        return [measurement.config for measurement in taken]


class Fleet:
    """A store with its campaigns, rounds and workers, and a clock that the test advances."""

    def __init__(self, store: Store, timing: Timing = BY_HAND) -> None:
        self.store, self.timing = store, timing
        self.campaigns, self.rounds = Campaigns(store), Rounds(store, timing)
        self.workers = Workers(store, timing)
        self.clock = 1_000.0
        self.sweeper = Sweeper(store, timing, clock=lambda: self.clock)
        # Has listened for long enough to call a worker silent.
        self.clock += 10 * timing.silence_seconds
        self.sweeper._last_sweep = self.clock

    def pass_time(self, seconds: float) -> None:
        """Makes every heartbeat older, as if time had passed while the sweeper listened."""
        with self.store.transaction(writes=True) as session:
            for worker in session.scalars(select(WorkerRow)):
                worker.beat_at -= timedelta(seconds=seconds)
            if not self.store.embedded:
                older = "UPDATE procrastinate_workers SET last_heartbeat = last_heartbeat - make_interval(secs => :s)"
                session.execute(text(older), {"s": seconds})

    def fall_silent(self) -> None:
        """Advances the clock until every worker without a new heartbeat counts as gone."""
        self.pass_time(self.timing.silence_seconds + 1)

    def hand(self, number: int = 0) -> Hand:
        return Hand(self, number)

    def campaign(self, problems: Sequence[Gemm] = PROBLEMS, **rest: object) -> Campaign:
        rest = {"devices": (("NVIDIA H200", "cuda"),), "budget": CampaignBudget(candidates=20, rounds=11)} | rest
        request = CampaignRequest("test", tuple(problems), **rest)  # type: ignore[arg-type]
        return self.campaigns.create(request)[0]

    def statuses(self, campaign_id: int) -> Counter[str]:
        """Number of a campaign's problems by status; a status that none has is left out."""
        return Counter(problem.status.value for problem in results.problems(self.store, campaign_id))


def failing(config: Config, problem: Gemm, outcome: Outcome = Outcome.TIMEOUT) -> Measurement:
    """A candidate that failed."""
    return measured(config, problem=problem, outcome=outcome)


class SlowDevice(FakeDevice):
    """A slow device that signals the start of its first candidate.

    Args:
        held: the first candidate is measured only once `go_on` is set.
    """

    def __init__(self, number: int = 0, seconds: float = 0.05, held: bool = False) -> None:
        super().__init__(number)
        self.began, self.go_on = threading.Event(), threading.Event()
        if not held:
            self.go_on.set()
        self.seconds, self.measured = seconds, 0

    def begin(self, problem: Gemm) -> Round:
        quick = super().begin(problem)
        return _SlowRound(quick, self)


class _SlowRound:
    def __init__(self, quick: Round, device: SlowDevice) -> None:
        self._quick, self._device = quick, device
        self.provenance, self.policy = quick.provenance, quick.policy

    def screen(self, candidates: Sequence[Config], more: More = no_more) -> Iterator[Measurement]:
        for measurement in self._quick.screen(candidates):
            self._device.began.set()
            assert self._device.go_on.wait(60)
            time.sleep(self._device.seconds)
            self._device.measured += 1
            yield measurement

    def finals(self, finalists: Sequence[Config], turns: int) -> tuple[Measurement, ...]:
        return self._quick.finals(finalists, turns)


class Listening:
    """The service and its maintenance thread on a real socket; can be stopped and started again on the same port."""

    def __init__(self, url: str, timing: Timing = CALM) -> None:
        self._database, self._timing = url, timing
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.store = Store.open(self._database)
        app = create_app(self.store, timing=self._timing)
        self._server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
        listener = listen("127.0.0.1", self.port)
        self._maintenance = Maintenance(self.store, self._timing)
        self._maintenance.__enter__()
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listener]})
        self._thread.start()

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._maintenance.__exit__()
        self.store.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def eventually(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    """Waits until something holds; an assertion when it never does."""
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it never came true"
        time.sleep(0.02)
