"""What other clients notice of a flood: latency of their questions and memory of the service, before and after.

    python -m benchmarks.floods --before 25b92f2 --out benchmarks/results/floods.md

Each flood hits a service of its own, run as users run it. Another client with another token asks for stored bests, a
hundred times a second, and opens a new connection for every twentieth question. Its times count from when a question
was due, so that a pause of the service is seen as often as questions fall into it.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import httpx2

from benchmarks.attacks import ATTACKS
from benchmarks.ports import free_port
from benchmarks.published import ROOT, add_out, publish
from benchmarks.serving import Running, wait_ready

_BESTS: Final = 5_000
_PATIENCE_SECONDS: Final = 10.0
_PAUSE_SECONDS: Final = 0.01
_QUESTIONS_PER_CONNECTION: Final = 20
#: Fills a store: of this commit, or of one in which these modules had other names.
_PREPARE: Final = """
import sys
from benchmarks.service_table import fill
try:
    from tuner.evidence import tokens
    from tuner.evidence.store import Store
except ImportError:
    from tuner import tokens
    from tuner.store.store import Store
with Store.open(f"sqlite:///{sys.argv[1]}") as store:
    for problem in fill(store, int(sys.argv[2])):
        print(f"/v1/best?m={problem.m}&n={problem.n}&k={problem.k}&dtype={problem.dtype}&layout={problem.layout}")
    for name, scopes in (("attacker", ["read", "submit"]), ("other", ["read"])):
        print(tokens.make(store, name, scopes)[1])
"""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A store, tokens for it, and questions that it answers."""

    tree: Path
    db: Path
    paths: tuple[str, ...]
    attacker: str
    other: str


@dataclass(frozen=True, slots=True)
class Effect:
    """What a flood did to others.

    Attributes:
        most_mb: the service's highest resident memory.
        seen: what the attacker saw.
    """

    p50_ms: float
    p99_ms: float
    worst_ms: float
    failed: int
    most_mb: float
    seen: dict[str, Any]


class Bystander:
    """A client that asks from 127.0.0.2 between `__enter__` and `__exit__`.

    Attributes:
        took_ms: time of each question.
        failed: questions without an answer.
    """

    def __init__(self, port: int, prepared: Prepared) -> None:
        self._port, self._prepared = port, prepared
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bystander", daemon=True)
        self.took_ms: list[float] = []
        self.failed = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def effect(self, most_mb: float, seen: dict[str, Any]) -> Effect:
        """Its percentiles."""
        ms = sorted(self.took_ms)
        return Effect(ms[len(ms) // 2], ms[int(len(ms) * 0.99)], ms[-1], self.failed, most_mb, seen)

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
    """Floods the service of each tree, and prints the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--attacks", nargs="+", choices=ATTACKS, default=list(ATTACKS))
    options.add_argument("--seconds", type=float, default=10.0, help="of each flood")
    options.add_argument("--before", metavar="COMMIT", help="flood the service of this commit, too")
    options.add_argument("--streams", type=int, nargs="+", default=[40, 500], help="readers of event streams")
    add_out(options)
    given = options.parse_args()
    floods = [(name, count) for name in given.attacks for count in (given.streams if name == "streams" else [None])]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trees = {"now": ROOT} if given.before is None else {given.before: checkout(given.before, folder), "now": ROOT}
        found = {label: [*floods_on(tree, folder / label, floods, given.seconds)] for label, tree in trees.items()}
    text = "\n".join(report(floods, found, given.seconds))
    print(text)
    publish("floods", given.out, text)


def checkout(commit: str, folder: Path) -> Path:
    """The files of a commit."""
    tree = folder / "tree"
    tree.mkdir()
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", commit], capture_output=True, check=True).stdout
    subprocess.run(["tar", "--extract", "--directory", str(tree)], input=archive, check=True)
    return tree


def floods_on(
    tree: Path, folder: Path, floods: list[tuple[str, int | None]], seconds: float
) -> Iterator[Effect]:  # fmt: skip
    """What each flood does to the service of a tree."""
    folder.mkdir()
    prepared = prepare(tree, folder / "store.db")
    for name, count in floods:
        with serving(prepared, folder / "service.log") as service:
            make_campaign(service.port, prepared)
            with Bystander(service.port, prepared) as other:
                time.sleep(1.0)
                seen = attack(name, service.port, prepared, seconds, count)
            effect = other.effect(service.memory_mb("VmHWM"), seen)
        print(name, count or "", effect, file=sys.stderr, flush=True)
        yield effect


def prepare(tree: Path, db: Path) -> Prepared:
    """A filled store."""
    command = [*_python(tree), "-c", _PREPARE, str(db), str(_BESTS)]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=True)
    *paths, attacker, other = done.stdout.split()
    return Prepared(tree, db, tuple(paths), attacker, other)


@contextmanager
def serving(prepared: Prepared, log: Path) -> Iterator[Running]:
    """The service of a tree, ready; it is killed if a flood left it unable to stop."""
    port, begin = free_port(), time.monotonic()
    module = "gemmtune" if (prepared.tree / "gemmtune" / "__main__.py").exists() else "tuner.cli"
    command = [*_python(prepared.tree), "-m", module, "serve", "--db", str(prepared.db), "--auth", "on"]
    command += ["--port", str(port)]
    with log.open("ab") as out, subprocess.Popen(command, cwd=prepared.tree, stdout=out, stderr=out) as child:
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
    """Runs one attack in its own process; what it saw. Elsewhere an attacker takes no CPU time from the service."""
    command = ["nice", "-n", "19", sys.executable, "-m", "benchmarks.attacks", name, "--port", str(port)]
    command += ["--seconds", str(seconds), "--secret", prepared.attacker, "--path", prepared.paths[0]]
    command += ["--count", str(count)] if count else []
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=seconds + 600)
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def report(floods: list[tuple[str, int | None]], found: dict[str, list[Effect]], seconds: float) -> list[str]:
    """The tables, as lines of Markdown."""
    columns = [f"{label}: {figure}" for label in found for figure in ("p50, p99, worst of others, ms", "memory, MB")]
    lines = [
        f"{seconds:.0f} s of each flood; {_BESTS:,} bests in SQLite; {os.cpu_count()} CPU cores shared with "
        f"attacker and bystander; load average {os.getloadavg()[0]:.1f}. In brackets: questions without an answer.",
        "",
        f"| flood | {' | '.join(columns)} | what the attacker saw now |",
        f"| --- |{' --- |' * (len(columns) + 1)}",
    ]
    for place, (name, count) in enumerate(floods):
        effects = [effects[place] for effects in found.values()]
        cells = [cell for effect in effects for cell in (_latency(effect), f"{effect.most_mb:,.0f}")]
        lines.append(f"| {_title(name, count)} | {' | '.join(cells)} | {_seen(effects[-1].seen)} |")
    return lines


def _title(name: str, count: int | None) -> str:
    told = (ATTACKS[name].__doc__ or "").strip().rstrip(".")
    return f"`{name}`: {told.replace('500', str(count), 1) if count else told}"


def _latency(effect: Effect) -> str:
    failed = f" ({effect.failed})" if effect.failed else ""
    return f"{effect.p50_ms:.1f}, {effect.p99_ms:.1f}, {effect.worst_ms:,.0f}{failed}"


def _seen(seen: dict[str, Any]) -> str:
    statuses = ", ".join(f"{count}× {status}" for status, count in seen["statuses"].items())
    answer = f"; largest answer {seen['most_answer_bytes']:,} bytes" if seen["most_answer_bytes"] else ""
    took = f"{seen['sent_bytes'] / 2**20:,.0f} MiB taken"
    return (f"{seen['closed']:,} of {seen['connections']:,} connections closed, {took}"
            f"{'; ' if statuses else ''}{statuses}{answer}")  # fmt: skip


def _python(tree: Path) -> list[str]:
    """A command that runs Python with the packages of a tree before those of this one."""
    return ["env", f"PYTHONPATH={os.pathsep.join([str(tree), *sys.path])}", sys.executable]


if __name__ == "__main__":
    main()
