"""The weather of a storm: which fault strikes when, and what follows from it."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import httpx2

from benchmarks.attacks import ATTACKS
from benchmarks.replicated import Replicated
from benchmarks.silent_proxy import SilentProxy
from benchmarks.storm_fleet import Fleet, claimed_since, running
from tuner.errors import StoreError
from tuner.evidence.store import Store

#: How often each fault strikes, in proportion; every one strikes at least once if there are enough.
FAULTS: Final = {
    "worker killed -9": 6,
    "worker killed -9 in calm": 2,
    "worker stopped, then continued": 3,
    "service killed -9": 2,
    "service restarted": 2,
    "workers cut off from the services": 1,
    "database restarted": 1,
    "database killed -9": 1,
    "database stopped, then continued": 1,
    "database cut off": 1,
    "database failed over": 2,
    "flood": 2,
}
#: How long something is stopped or cut off, at least and at most, in heartbeats: the longest makes workers look gone.
_PAUSE_HEARTBEATS: Final = (0.2, 2.4)
#: A worker that is killed in calm is alone in its trouble: services are ready for this long before, and nothing else
#: strikes until its round begins anew, or for this many heartbeats.
_CALM_SECONDS: Final = 1.0
_CALM_HEARTBEATS: Final = 6.0
_FLOOD_SECONDS: Final = 3.0
_FLOOD_CONNECTIONS: Final = 100


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


def planned(chance: random.Random, faults: int) -> list[str]:
    """Kinds of faults in the order in which they strike; every kind is among them if there are enough."""
    kinds = chance.sample([*FAULTS], min(faults, len(FAULTS)))
    kinds += chance.choices([*FAULTS], [*FAULTS.values()], k=faults - len(kinds))
    return chance.sample(kinds, faults)


class Weather:
    """Injects faults into a fleet.

    Args:
        front: the proxy between workers and services.
        store: reached past whatever is cut off.
        secret: token of a client that floods.

    Attributes:
        recovered: when an outage ended that no probe of a service may have seen.
    """

    def __init__(
        self, fleet: Fleet, database: Replicated, front: SilentProxy, store: Store, secret: str,
        chance: random.Random,
    ) -> None:  # fmt: skip
        self._fleet, self._database, self._front, self._store = fleet, database, front, store
        self._secret, self._chance = secret, chance
        self._later: list[threading.Thread] = []
        self._database_back = threading.Event()
        self._database_back.set()
        self._begins_anew: Callable[[], bool] = lambda: True
        self.recovered: list[datetime] = []

    def may_strike(self) -> bool:
        """False while the round of a worker that was killed in calm has not begun anew."""
        return self._begins_anew()

    def strike(self, kind: str) -> Fault:
        """One fault of this kind."""
        if kind.startswith("database"):
            # One failure of the database at a time: a second one might have no standby left.
            self._database_back.wait()
        fault = Fault(kind, datetime.now(UTC))
        if kind == "worker killed -9 in calm":
            self._kill_in_calm(fault)
        elif kind.startswith("worker "):
            place = self._chance.choice(self._holding() or range(len(self._fleet.workers)))
            fault.problem_key = self._held_by(self._fleet.workers[place].pid)
            fault.at = datetime.now(UTC)
            if kind == "worker killed -9":
                self._kill_worker(place)
            else:
                self._stop(self._fleet.workers[place])
        elif kind.startswith("service"):
            self._restart_service(self._chance.randrange(len(self._fleet.services)), kind == "service killed -9")
        elif kind == "workers cut off from the services":
            self._front.fall_silent()
            self._after_a_pause(self._front.fail_over, self._note)
        elif kind == "flood":
            self._flood()
        else:
            self._strike_database(kind.removeprefix("database "))
        return fault

    def calm(self) -> None:
        """Waits until nothing is stopped, cut off or flooding any more."""
        while self._later:
            self._later.pop().join()

    def _strike_database(self, how: str) -> None:
        database = self._database
        if how == "restarted":
            database.restart()
        elif how == "killed -9":
            database.crash()
        elif how == "failed over":
            database.fail_over()
            self._database_back.clear()
            self._run(database.replace_standby, self._database_back.set)
        else:
            self._database_back.clear()
            begin, end = {
                "stopped, then continued": (database.primary.suspend, database.primary.resume),
                "cut off": (database.clients.fall_silent, database.clients.fail_over),
            }[how]
            begin()
            self._after_a_pause(end, self._note, self._database_back.set)
        self._note()

    def _note(self) -> None:
        self.recovered.append(datetime.now(UTC))

    def _kill_in_calm(self, fault: Fault) -> None:
        """Kills a worker in a round when all else is well."""
        self.calm()
        while not all(map(_is_ready, self._fleet.ports)):
            self._fleet.keep()
            time.sleep(0.1)
        time.sleep(_CALM_SECONDS)
        seconds = _CALM_HEARTBEATS * self._fleet.heartbeat_seconds
        until = time.monotonic() + seconds
        while not fault.problem_key and time.monotonic() < until:
            self._fleet.keep()
            for place in self._holding():
                pid, fault.at = self._fleet.workers[place].pid, datetime.now(UTC)
                self._kill_worker(place)
                # Unless it had just reported its round.
                if key := self._held_by(pid):
                    fault.problem_key = key
                    break
            time.sleep(0.05)
        if fault.problem_key:
            key, at, latest = fault.problem_key, fault.at, time.monotonic() + seconds
            self._begins_anew = lambda: time.monotonic() > latest or claimed_since(self._store, key, at)

    def _kill_worker(self, place: int) -> None:
        process = self._fleet.workers[place]
        process.send_signal(signal.SIGKILL)
        process.wait()
        self._fleet.workers[place] = self._fleet.start_worker()

    def _stop(self, process: subprocess.Popen[bytes]) -> None:
        def go_on() -> None:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)

        process.send_signal(signal.SIGSTOP)
        self._after_a_pause(go_on)

    def _restart_service(self, place: int, hard: bool) -> None:
        service = self._fleet.services[place]
        service.send_signal(signal.SIGKILL if hard else signal.SIGTERM)
        service.wait()
        self._fleet.services[place] = self._fleet.start_service(place)

    def _flood(self) -> None:
        """One attack of `benchmarks.attacks` on one service, straight at its port."""
        attack, port = self._chance.choice([*ATTACKS]), self._chance.choice(self._fleet.ports)
        command = [sys.executable, "-m", "benchmarks.attacks", attack, "--secret", self._secret, "--port", str(port),
                   "--seconds", str(_FLOOD_SECONDS), "--count", str(_FLOOD_CONNECTIONS)]  # fmt: skip
        self._run(lambda: subprocess.run(command, capture_output=True, check=False))

    def _after_a_pause(self, *actions: Callable[[], object]) -> None:
        seconds = self._chance.uniform(*_PAUSE_HEARTBEATS) * self._fleet.heartbeat_seconds
        self._run(lambda: threading.Event().wait(seconds), *actions)

    def _run(self, *actions: Callable[[], object]) -> None:
        """Runs actions one after the other, beside the storm."""

        def run() -> None:
            for action in actions:
                action()

        self._later.append(threading.Thread(target=run))
        self._later[-1].start()

    def _held_by(self, pid: int) -> str:
        """The problem of the round that a worker process holds; empty if none."""
        return self._held().get(str(pid), "")

    def _holding(self) -> list[int]:
        """Places of the workers that hold a round."""
        held = self._held()
        return [place for place, worker in enumerate(self._fleet.workers) if str(worker.pid) in held]

    def _held(self) -> dict[str, str]:
        """Problems of the running rounds by process: a worker's default name ends in its process."""
        with suppress(StoreError):
            return {name.rpartition("-")[2]: key for name, key in running(self._store)}
        return {}


def _is_ready(port: int) -> bool:
    with suppress(httpx2.TransportError):
        return httpx2.get(f"http://127.0.0.1:{port}/readyz", timeout=2).status_code == 200
    return False
