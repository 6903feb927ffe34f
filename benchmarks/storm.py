"""A storm over a fleet: workers, services and the database are killed, stopped and restarted at random.

    python -m benchmarks.storm --problems 200 --workers 8 --faults 60 --out benchmarks/results/F.md

PostgreSQL, `gemmtune serve` and `gemmtune worker run` are real processes that use HTTP, and NVRTC compiles the
candidates. Only the GPU is replaced, by planted recordings of any number of problems. At the end `Audit` checks the
tables.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from sqlalchemy import select

from benchmarks.installation import Installation
from benchmarks.postgres import Postgres, running_postgres
from benchmarks.published import add_out, publish
from benchmarks.storm_audit import Audit, audit
from benchmarks.storm_recordings import plant
from benchmarks.storm_watch import Watch
from space.kinds.gemm import Gemm
from tuner.errors import StoreError
from tuner.evidence.campaign_models import RoundRow, WorkerRow
from tuner.evidence.models import ProblemRow
from tuner.evidence.store import Store
from tuner.exits import EXIT_SERVICE, EXIT_STORE
from tuner.fleet.campaigns import results
from tuner.fleet.campaigns.campaigns import Campaigns
from tuner.fleet.campaigns.records import CampaignBudget, CampaignRequest, CampaignStatus

FAULTS: Final = {
    "worker killed -9": 5,
    "worker stopped, then continued": 4,
    "service killed -9": 2,
    "service restarted": 2,
    "database restarted": 1,
    "database killed -9": 1,
}
_CANDIDATES: Final = 24
_ROUND_SECONDS: Final = 3
#: Exit codes of a command that could not open the store or reach the service.
_UNREACHABLE: Final = (EXIT_STORE, EXIT_SERVICE)


@dataclass(slots=True)
class Fault:
    """One fault, and what it hit.

    Attributes:
        problem_key: problem of the worker's round; empty if it had none.
        at: time by the database's clock.
    """

    kind: str
    at: datetime
    problem_key: str = ""


@dataclass(slots=True)
class Storm:
    """Outcome of a storm.

    Attributes:
        seconds: from the campaign's beginning to its end.
    """

    faults: list[Fault] = field(default_factory=list)
    seconds: float = 0.0


class Fleet:
    """A service and its workers as processes.

    Args:
        url: of the database.
        device: of every worker.
    """

    def __init__(self, folder: Path, url: str, heartbeat_seconds: float, device: str = "recorded:h200") -> None:
        self._device = device
        self._installed = Installation(folder, url, heartbeat_seconds, _ROUND_SECONDS)
        self.url = self._installed.url
        self._installed.make_token()
        self.service = self.start_service()
        self.workers: list[subprocess.Popen[bytes]] = []

    def start_service(self) -> subprocess.Popen[bytes]:
        """`gemmtune serve`."""
        return self._installed.start_service()

    def start_worker(self) -> subprocess.Popen[bytes]:
        """`gemmtune worker run`."""
        return self._installed.start_worker(self._device)

    def keep(self) -> None:
        """Restarts processes that found no database or service at their start, as systemd and compose do."""
        if self.service.poll() in _UNREACHABLE:
            self.service = self.start_service()
        self.workers = [self.start_worker() if worker.poll() in _UNREACHABLE else worker for worker in self.workers]

    def stop(self) -> None:
        """Ends every process."""
        for process in (*self.workers, self.service):
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()


class Weather:
    """Injects a number of faults into a fleet."""

    def __init__(self, fleet: Fleet, postgres: Postgres, store: Store, chance: random.Random, watch: Watch) -> None:
        self._fleet, self._postgres, self._store, self._chance = fleet, postgres, store, chance
        self._watch = watch
        self._later: list[tuple[float, Callable[[], object]]] = []

    def strike(self) -> Fault:
        """One fault."""
        kind = self._chance.choices(list(FAULTS), list(FAULTS.values()))[0]
        fault = Fault(kind, datetime.now(UTC))
        if kind.startswith("worker"):
            place = self._chance.randrange(len(self._fleet.workers))
            fault.problem_key = self._held_by(self._fleet.workers[place].pid)
            fault.at = datetime.now(UTC)
            if kind == "worker killed -9":
                self._kill_worker(place)
            else:
                self._stop_worker(self._fleet.workers[place])
        elif kind.startswith("service"):
            self._restart_service(kind == "service killed -9")
        else:
            if kind == "database restarted":
                self._postgres.restart()
            else:
                self._postgres.crash()
                self._postgres.start()
            self._watch.note()
        return fault

    def settle(self) -> None:
        """Runs due follow-ups of earlier faults, and restarts a service that ended by itself."""
        if self._fleet.service.poll() is not None:
            self._fleet.service = self._fleet.start_service()
        due = [action for moment, action in self._later if moment <= time.monotonic()]
        self._later = [entry for entry in self._later if entry[0] > time.monotonic()]
        for action in due:
            with suppress(ProcessLookupError):
                action()

    def _kill_worker(self, place: int) -> None:
        process = self._fleet.workers[place]
        process.send_signal(signal.SIGKILL)
        process.wait()
        self._fleet.workers[place] = self._fleet.start_worker()

    def _stop_worker(self, process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGSTOP)
        wakes = time.monotonic() + self._chance.uniform(1.0, 12.0)
        self._later.append((wakes, lambda: process.send_signal(signal.SIGCONT)))

    def _restart_service(self, hard: bool) -> None:
        self._fleet.service.send_signal(signal.SIGKILL if hard else signal.SIGTERM)
        self._fleet.service.wait()
        self._fleet.service = self._fleet.start_service()

    def _held_by(self, pid: int) -> str:
        """The problem of the round that a worker process holds, by its default name."""
        with suppress(StoreError):
            return next((key for name, key in running(self._store) if name.endswith(f"-{pid}")), "")
        return ""


def running(store: Store) -> list[tuple[str, str]]:
    """Names of workers with the problems that they run now."""
    query = select(WorkerRow.name, ProblemRow.key).select_from(RoundRow).join(WorkerRow).join(ProblemRow)
    with store.transaction() as session:
        return [(name, key) for name, key in session.execute(query.where(RoundRow.status == "running"))]


def run(problems: int, workers: int, faults: int, heartbeat_seconds: float, seed: int, most_seconds: float,
        say: Callable[[str], None] = print) -> tuple[Storm, Audit]:  # fmt: skip
    """Runs a storm, then audits the tables.

    Raises:
        TimeoutError: the campaign did not end in time.
    """
    chance, storm = random.Random(seed), Storm()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        postgres = stack.enter_context(running_postgres(durable=True))
        shapes = plant(folder / "recorded" / "h200", problems, _CANDIDATES)
        url = postgres.database()
        store = stack.enter_context(Store.open(url))
        fleet = Fleet(folder, url, heartbeat_seconds)
        stack.callback(fleet.stop)
        fleet.workers = [fleet.start_worker() for _ in range(workers)]
        campaign = begin_campaign(store, shapes)
        watch = stack.enter_context(Watch(fleet.url))
        while not watch.recovered:
            time.sleep(0.1)
        weather, started = Weather(fleet, postgres, store, chance, watch), time.monotonic()
        for _ in _looks(started + most_seconds):
            weather.settle()
            fleet.keep()
            done, ended = _stands(store, campaign)
            if ended:
                break
            # Spreads the faults over the campaign, in proportion to the completed problems.
            if len(storm.faults) < faults and done * faults >= len(storm.faults) * problems * 0.9:
                storm.faults.append(weather.strike())
                say(f"{time.monotonic() - started:6.1f} s  {done}/{problems} ended  {storm.faults[-1].kind}")
        storm.seconds = time.monotonic() - started
        limit = 2 * heartbeat_seconds + 5
        struck = [(fault.kind, fault.at, fault.problem_key) for fault in storm.faults]
        return storm, audit(store, campaign, struck, limit, watch.recovered)


def _looks(until: float) -> Iterator[None]:
    while time.monotonic() < until:
        yield
        time.sleep(0.1)
    raise TimeoutError("the campaign did not end in time")


def begin_campaign(store: Store, problems: list[Gemm], candidates: int = _CANDIDATES) -> int:
    """Creates the campaign and returns its number."""
    budget = CampaignBudget(candidates=candidates, rounds=11)
    request = CampaignRequest("storm", tuple(problems), (("NVIDIA H200", "recorded"),), budget)
    return Campaigns(store).create(request)[0].id


def _stands(store: Store, campaign_id: int) -> tuple[int, bool]:
    """How many problems have ended, and whether the campaign has."""
    with suppress(StoreError):
        progress = results.progress(store, campaign_id)
        found = progress.problems
        ended = progress.campaign.status is CampaignStatus.FINISHED
        return found["done"] + found["parked"] + found["skipped"], ended
    return 0, False


def report(storm: Storm, found: Audit, options: argparse.Namespace) -> str:
    """The report as Markdown."""
    kinds = Counter(fault.kind for fault in storm.faults)
    lines = [
        f"{options.problems} problems of {_CANDIDATES} candidates, {options.workers} workers on the recorded device, "
        f"heartbeat {options.heartbeat:g} s, seed {options.seed}: ended after {storm.seconds:.0f} s.",
        "", "| fault | times |", "| --- | --- |",
        *(f"| {kind} | {count} |" for kind, count in sorted(kinds.items())), f"| all | {len(storm.faults)} |", "",
        "| what has to hold | found | holds |", "| --- | --- | --- |",
        *(f"| {check.what} | {check.found} | {'yes' if check.holds else '**no**'} |" for check in found.checks),
    ]  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    """Runs a storm, prints its table, and fails if a check does not hold."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--problems", type=int, default=200)
    options.add_argument("--workers", type=int, default=8)
    options.add_argument("--faults", type=int, default=60)
    options.add_argument("--heartbeat", type=float, default=2.0)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--seconds", type=float, default=3_600.0, help="give up after these")
    add_out(options)
    given = options.parse_args()
    storm, found = run(given.problems, given.workers, given.faults, given.heartbeat, given.seed, given.seconds)
    text = report(storm, found, given)
    print(text)
    publish("storm", given.out, text)
    if not all(check.holds for check in found.checks):
        sys.exit(1)


if __name__ == "__main__":
    main()
