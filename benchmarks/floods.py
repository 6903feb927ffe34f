"""What other clients notice of a flood: latency of their questions and memory of the service.

    python -m benchmarks.floods --out benchmarks/results/floods.md

Each flood hits a service of its own, run as users run it. Another client with another token asks for stored bests, a
hundred times a second, and opens a new connection for every twentieth question. Its times count from when a question
was due, so that a pause of the service is seen as often as questions fall into it. A worker sends heartbeats meanwhile.

The service has one core to itself. The attacker shares the other with the clients, as long as it is on this machine,
and runs only while they leave it idle. Three controls tell what that alone costs them: no attacker, one that only keeps
its core busy, and one that opens connections to a port that nobody serves.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2

from benchmarks.attacks import ATTACKS
from benchmarks.command import as_command
from benchmarks.ports import free_port
from benchmarks.published import ROOT, add_out, publish
from benchmarks.repeated import Repeated
from benchmarks.service_table import fill
from benchmarks.serving import Running, wait_ready
from tuner.evidence import tokens
from tuner.evidence.store import Store
from tuner.fleet.campaigns.records import TIMING
from tuner.settings import database_url

_BESTS: Final = 5_000
_PATIENCE_SECONDS: Final = 10.0
_PAUSE_SECONDS: Final = 0.01
#: A service makes what pages show in its first seconds.
_SETTLE_SECONDS: Final = 3.0
_QUESTIONS_PER_CONNECTION: Final = 20
#: Cores of the service, and of the attacker and the clients.
_SERVICE_CORE, _CLIENT_CORE = 0, 1
#: What is done in place of an attack.
_CONTROLS: Final = {
    "none": "Control: nobody attacks",
    "busy": "Control: the attacker keeps its core busy and sends nothing",
    "elsewhere": "Control: the attacker opens 3,000 connections to a port that nobody serves",
}
#: Fewer than the kernel's queue of connections that nobody accepts.
_ELSEWHERE: Final = 3_000
#: The attacker's priority: below everything else.
_IDLE: Final = ("chrt", "--idle", "0")
_BEAT_SECONDS: Final = 0.5
_FACTS: Final = {"name": "NVIDIA H200", "arch": "sm_90a", "kind": "recorded", "uuid": "made-up", "driver": "made up",
                 "sm_count": 132, "l2_bytes": 62_914_560}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Prepared:
    """A store, tokens for it, and questions that it answers."""

    db: Path
    paths: tuple[str, ...]
    attacker: str
    other: str
    worker: str


@dataclass(frozen=True, slots=True)
class Effect:
    """What a flood did to others.

    Attributes:
        most_mb: the service's highest resident memory.
        seen: what the attacker saw.
        beats, missed: heartbeats sent, and those that were refused or not acknowledged before the next one was due.
        slowest_beat_ms: time of the slowest acknowledged one.
    """

    p50_ms: float
    p99_ms: float
    worst_ms: float
    failed: int
    most_mb: float
    seen: dict[str, Any]
    beats: int
    missed: int
    slowest_beat_ms: float


class Heartbeats(Repeated):
    """A worker's heartbeats between `__enter__` and `__exit__`, more of them than a worker sends.

    Attributes:
        took_ms: time of each acknowledged one.
        missed: those that were refused, or not acknowledged in the interval of workers.
    """

    def __init__(self, port: int, prepared: Prepared) -> None:
        super().__init__("heartbeats")
        self._http = httpx2.Client(
            base_url=f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {prepared.worker}"},
            timeout=TIMING.heartbeat_seconds,
        )  # fmt: skip
        worker = self._http.post("/v1/workers", json={"name": f"worker-{port}", "facts": _FACTS})
        worker.raise_for_status()
        self._path = f"/v1/workers/{worker.json()['worker_id']}:heartbeat"
        self.took_ms: list[float] = []
        self.missed = 0

    def __exit__(self, *raised: Any) -> None:  # noqa: ANN401  (what the base class takes)
        super().__exit__(*raised)
        self._http.close()

    def _run(self) -> None:
        while not self._ended.wait(_BEAT_SECONDS):
            begin = time.perf_counter()
            try:
                self._http.post(self._path, json={}).raise_for_status()
                self.took_ms.append((time.perf_counter() - begin) * 1e3)
            except httpx2.HTTPError:
                self.missed += 1


class Bystander(Repeated):
    """A client that asks from 127.0.0.2 between `__enter__` and `__exit__`.

    Attributes:
        took_ms: time of each question.
        failed: questions without an answer.
    """

    def __init__(self, port: int, prepared: Prepared) -> None:
        self._port, self._prepared = port, prepared
        super().__init__("bystander")
        self.took_ms: list[float] = []
        self.failed = 0

    def effect(self, most_mb: float, seen: dict[str, Any], worker: Heartbeats) -> Effect:
        """Its percentiles, beside what the attacker and a worker saw."""
        ms, beats = sorted(self.took_ms), worker.took_ms
        return Effect(
            ms[len(ms) // 2], ms[int(len(ms) * 0.99)], ms[-1], self.failed, most_mb, seen, len(beats) + worker.missed,
            worker.missed, max(beats, default=0.0),
        )  # fmt: skip

    def _run(self) -> None:
        connection, count, due = None, 0, time.perf_counter()
        while not self._ended.wait(max(due - time.perf_counter(), 0)):
            # A question that waits for the one before it counts from when it was due.
            begin, due = due, due + _PAUSE_SECONDS
            try:
                if connection is None or count % _QUESTIONS_PER_CONNECTION == 0:
                    connection = self._connection()
                self._ask(connection, self._prepared.paths[count % len(self._prepared.paths)])
                self.took_ms.append((time.perf_counter() - begin) * 1e3)
            except (OSError, http.client.HTTPException, ValueError):
                self.took_ms.append((time.perf_counter() - begin) * 1e3)
                self.failed += 1
                connection = None
            count += 1

    def _connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(
            "127.0.0.1", self._port, timeout=_PATIENCE_SECONDS, source_address=("127.0.0.2", 0)
        )

    def _ask(self, connection: http.client.HTTPConnection, path: str) -> None:
        connection.request("GET", path, headers={"Authorization": f"Bearer {self._prepared.other}"})
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise ValueError(answer.status)


def main() -> None:
    """Floods a service, and prints the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--attacks", nargs="+", choices=ATTACKS, default=list(ATTACKS))
    options.add_argument("--seconds", type=float, default=10.0, help="of each flood")
    options.add_argument("--streams", type=int, nargs="+", default=[40, 500], help="readers of event streams")
    add_out(options)
    given = options.parse_args()
    os.sched_setaffinity(0, {_CLIENT_CORE})
    floods: list[tuple[str, int | None]] = [(name, None) for name in _CONTROLS]
    floods += [(name, count) for name in given.attacks for count in (given.streams if name == "streams" else [None])]
    with tempfile.TemporaryDirectory() as name:
        effects = [*effects_of(floods, Path(name), given.seconds)]
    text = "\n".join(report(floods, effects, given.seconds))
    print(text)
    publish("floods", given.out, text)


def effects_of(floods: list[tuple[str, int | None]], folder: Path, seconds: float) -> Iterator[Effect]:
    """What each flood does to a service."""
    prepared = prepare(folder / "store.db")
    for name, count in floods:
        with serving(prepared, folder / "service.log") as service:
            make_campaign(service.port, prepared)
            time.sleep(_SETTLE_SECONDS)
            with Heartbeats(service.port, prepared) as worker, Bystander(service.port, prepared) as other:
                time.sleep(1.0)
                seen = attack(name, service.port, prepared, seconds, count)
            effect = other.effect(service.memory_mb("VmHWM"), seen, worker)
        print(name, count or "", effect, file=sys.stderr, flush=True)
        yield effect


def prepare(db: Path) -> Prepared:
    """A filled store."""
    with Store.open(database_url(str(db))) as store:
        paths = tuple(
            f"/v1/best?m={problem.m}&n={problem.n}&k={problem.k}&dtype={problem.dtype}&layout={problem.layout}"
            for problem in fill(store, _BESTS)
        )
        attacker, other, worker = (
            tokens.make(store, name, scopes)[1]
            for name, scopes in (("attacker", ["read", "submit"]), ("other", ["read"]), ("worker", ["work"]))
        )
    return Prepared(db, paths, attacker, other, worker)


@contextmanager
def serving(prepared: Prepared, log: Path) -> Iterator[Running]:
    """The service, ready; it is killed if a flood left it unable to stop."""
    port, begin = free_port(), time.monotonic()
    command = ["taskset", "-c", str(_SERVICE_CORE), sys.executable, "-m", "gemmtune", "serve", "--db", str(prepared.db)]
    command += ["--auth", "on", "--port", str(port)]
    with log.open("ab") as out, subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out) as child:
        try:
            wait_ready(port, child)
            yield Running(port, child.pid, time.monotonic() - begin)
        finally:
            child.send_signal(signal.SIGKILL)


def make_campaign(port: int, prepared: Prepared) -> None:
    """A campaign whose events can be watched; the same one for every flood."""
    body = {"name": "watched", "devices": [{"name": "NVIDIA H200"}],
            "problems": [{"m": 64 * (place + 1), "n": 4096, "k": 4096} for place in range(500)]}  # fmt: skip
    headers = {"Authorization": f"Bearer {prepared.attacker}", "Idempotency-Key": "watched"}
    httpx2.post(f"http://127.0.0.1:{port}/v1/campaigns", json=body, headers=headers, timeout=60).raise_for_status()


def attack(name: str, port: int, prepared: Prepared, seconds: float, count: int | None) -> dict[str, Any]:
    """Runs one attack, or control, in its own process; what it saw."""
    if name == "none":
        time.sleep(seconds)
        return {}
    if name == "busy":
        spinning = [*_IDLE, "timeout", str(seconds), sys.executable, "-c", "while True: pass"]
        subprocess.run(spinning, check=False)
        return {}
    if name == "elsewhere":
        with socket.create_server(("127.0.0.1", 0), backlog=2 * _ELSEWHERE) as unserved:
            attack("idle", unserved.getsockname()[1], prepared, seconds, _ELSEWHERE)
        return {}
    command = [*_IDLE, sys.executable, "-m", "benchmarks.attacks", name, "--port", str(port)]
    command += ["--seconds", str(seconds), "--secret", prepared.attacker, "--path", prepared.paths[0]]
    command += ["--count", str(count)] if count else []
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=seconds + 600)
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def report(floods: list[tuple[str, int | None]], effects: list[Effect], seconds: float) -> list[str]:
    """The tables, as lines of Markdown."""
    columns = ("p50, p99, worst of others, ms", "heartbeats missed, slowest", "memory, MB", "what the attacker saw")
    lines = [
        f"{seconds:.0f} s of each flood; {_BESTS:,} bests in SQLite; {os.cpu_count()} CPU cores, one for the service "
        f"and one for attacker and clients; load average {os.getloadavg()[0]:.1f}. "
        "In brackets: questions without an answer.",
        "",
        f"| flood | {' | '.join(columns)} |",
        f"| --- |{' --- |' * len(columns)}",
    ]
    for (name, count), effect in zip(floods, effects, strict=True):
        beats = f"{effect.missed} of {effect.beats}, {effect.slowest_beat_ms:.0f} ms"
        cells = (_latency(effect), beats, f"{effect.most_mb:,.0f}", _seen(effect.seen))
        lines.append(f"| {_title(name, count)} | {' | '.join(cells)} |")
    return lines


def _title(name: str, count: int | None) -> str:
    if name in _CONTROLS:
        return _CONTROLS[name]
    told = (ATTACKS[name].__doc__ or "").strip().rstrip(".")
    return f"`{name}`: {told.replace('500', str(count), 1) if count else told}"


def _latency(effect: Effect) -> str:
    failed = f" ({effect.failed})" if effect.failed else ""
    return f"{effect.p50_ms:.1f}, {effect.p99_ms:.1f}, {effect.worst_ms:,.0f}{failed}"


def _seen(seen: dict[str, Any]) -> str:
    if not seen:
        return ""
    statuses = ", ".join(f"{count}× {status}" for status, count in seen["statuses"].items())
    answer = f"; largest answer {seen['most_answer_bytes']:,} bytes" if seen["most_answer_bytes"] else ""
    took = f"{seen['sent_bytes'] / 2**20:,.0f} MiB taken"
    return (f"{seen['closed']:,} of {seen['connections']:,} connections closed, {took}"
            f"{'; ' if statuses else ''}{statuses}{answer}")  # fmt: skip


if __name__ == "__main__":
    as_command(main)
