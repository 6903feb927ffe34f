"""A service in its own process, as users run it, with a store, tokens and a campaign."""

from __future__ import annotations

import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import httpx2
import pytest

from benchmarks.attacks import Attacker
from benchmarks.ports import free_port
from benchmarks.serving import Running, wait_ready
from tests.support import DEVICE, keep_best
from tuner.evidence import tokens
from tuner.evidence.store import Store

PATH = "/v1/best?m=256&n=256&k=256"
#: Shared: each client would read the machine's certificates anew, in more time than an answer takes.
TRUST = ssl.create_default_context()


@dataclass(frozen=True, slots=True)
class Service:
    """A service under attack, with the tokens of the attacker and of another client."""

    running: Running
    log: Path
    attacker: str
    other: str
    #: Tokens like the attacker's that nobody has used yet.
    unused: list[str]

    def attack(self, seconds: float, count: int | None = None) -> Attacker:
        """An attacker, ready."""
        return Attacker(self.running.port, self.attacker, PATH, seconds, count)

    def ask(self, method: str = "GET", path: str = PATH, secret: str | None = None, **rest: object) -> httpx2.Response:
        """What the service tells another client, or the holder of `secret`."""
        headers = {"Authorization": f"Bearer {self.other if secret is None else secret}"}
        url = f"http://127.0.0.1:{self.running.port}{path}"
        return httpx2.request(method, url, headers=headers, timeout=30, verify=TRUST, **rest)  # type: ignore[arg-type]


class Others:
    """Another client, which asks as long as the block runs and is always answered within its patience."""

    def __init__(self, service: Service, patience_seconds: float = 5.0) -> None:
        self._service, self._patience_seconds = service, patience_seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.answered = 0
        self.wrong: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        assert self.wrong == []
        assert self.answered > 0
        assert self._service.running.memory_mb("VmRSS") < 500

    def _run(self) -> None:
        while True:
            began = time.monotonic()
            try:
                status = self._service.ask().status_code
            except httpx2.TransportError as error:
                status = repr(error)
            took = time.monotonic() - began
            if status != 200 or took > self._patience_seconds:
                self.wrong.append(f"{status} after {took:.1f} s")
            self.answered += 1
            if self._ended.wait(0.05):
                return


@contextmanager
def running(folder: Path) -> Iterator[Running]:
    """The service on the folder's store, which ends as told."""
    port, begin = free_port(), time.monotonic()
    command = ["env", "GEMMTUNE_TRUSTED_PROXIES=127.0.0.1", sys.executable, "-m", "gemmtune", "serve", "--auth", "on"]
    command += ["--db", str(folder / "store.db"), "--port", str(port)]
    with (folder / "log").open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as child:
        try:
            wait_ready(port, child)
            yield Running(port, child.pid, time.monotonic() - begin)
            child.send_signal(signal.SIGTERM)
            assert child.wait(60) == 0
        finally:
            child.kill()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("attacked")
    with Store.open(f"sqlite:///{folder}/store.db") as store:
        keep_best(store)
        _, attacker = tokens.make(store, "attacker", ["read", "submit"])
        _, other = tokens.make(store, "other", ["read"])
        unused = [tokens.make(store, f"unused-{place}", ["read", "submit"])[1] for place in range(30)]
    with running(folder) as found:
        service = Service(found, folder / "log", attacker, other, unused)
        campaign = {"name": "watched", "problems": [{"m": 64, "n": 64, "k": 64}], "devices": [{"name": DEVICE}]}
        assert service.ask("POST", "/v1/campaigns", attacker, json=campaign).status_code == 201
        yield service
