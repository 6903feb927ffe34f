"""`gemmtune serve` as users run it: a process of its own, its words, its log and its end."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx2
import pytest

from tests.integration.api.asking import ASKED
from tests.support import FACTS, keep_best
from tuner import tokens
from tuner.store.store import Store


@dataclass
class Serving:
    """A service in a process of its own."""

    process: subprocess.Popen[str]
    url: str
    log: Path

    def lines(self) -> list[str]:
        """What it has said so far."""
        return self.log.read_text().splitlines()


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[Serving]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "tuner.cli", "serve", "--db", str(folder / "store.db"), "--port", str(port)]
    log = folder / "log"
    with log.open("w") as out, subprocess.Popen([*command, *arguments], stderr=out, text=True) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            until = time.monotonic() + 60
            while True:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < until
                try:
                    if httpx2.get(f"{url}/readyz").status_code == 200:
                        break
                except httpx2.TransportError:
                    time.sleep(0.05)
            yield Serving(process, url, log)
        finally:
            process.kill()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store:
        keep_best(store)
    return tmp_path


def test_it_says_that_tokens_are_off_and_logs_json(folder: Path) -> None:
    with serving(folder) as ours:
        assert httpx2.get(f"{ours.url}/v1/best", params=ASKED).json()["source"] == "measured"
        assert any("tokens are off" in line for line in ours.lines())
        ours.process.send_signal(signal.SIGTERM)
        assert ours.process.wait(30) == 0
        logged = [json.loads(line) for line in ours.lines() if line.startswith("{")]
        asked = [line for line in logged if line["event"] == "request" and line["path"] == "/v1/best"]
        assert [(line["method"], line["status"], line["caller"]) for line in asked] == [("GET", 200, "local")]


def test_tokens_made_and_revoked_by_command_count_in_a_running_service(folder: Path) -> None:
    with serving(folder, "--auth", "on") as ours, Store.open(f"sqlite:///{folder}/store.db") as store:
        assert any("token create" in line for line in ours.lines())
        _, secret = tokens.make(store, "reader", ["read"])
        headers = {"Authorization": f"Bearer {secret}"}

        def status() -> int:
            return httpx2.get(f"{ours.url}/v1/best", params=ASKED, headers=headers).status_code

        _wait(lambda: status() == 200)
        tokens.revoke(store, "reader")
        _wait(lambda: status() == 401)


def test_told_to_stop_it_answers_what_is_under_way(folder: Path) -> None:
    answers: list[int] = []

    def ask(url: str) -> None:
        # Nothing of this was measured: computing it takes about the second that a batch may take.
        problems = [{"m": 8 * place, "n": 4096, "k": 4096} for place in range(1, 2000)]
        answers.append(httpx2.post(f"{url}/v1/best:batch", json={"problems": problems}, timeout=60).status_code)

    with serving(folder) as ours:
        asking = threading.Thread(target=ask, args=(ours.url,))
        asking.start()
        time.sleep(0.3)
        ours.process.send_signal(signal.SIGTERM)
        assert ours.process.wait(40) == 0
        asking.join()
    assert answers == [200]


def test_it_cannot_be_opened_to_others_without_tokens(folder: Path) -> None:
    command = [sys.executable, "-m", "tuner.cli", "serve", "--db", str(folder / "store.db"), "--host", "0.0.0.0"]
    done = subprocess.run([*command, "--auth", "off"], capture_output=True, text=True, check=False)
    assert (done.returncode, "tokens can't be off" in done.stderr) == (3, True)


def _wait(true: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not true():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_workers_are_told_the_heartbeat_that_the_service_was_set_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMMTUNE_HEARTBEAT_SECONDS", "3.5")
    with serving(tmp_path) as service:
        worker = {"name": "node", "facts": asdict(FACTS)}
        welcome = httpx2.post(f"{service.url}/v1/workers", json=worker)
    assert (welcome.status_code, welcome.json()["heartbeat_seconds"]) == (201, 3.5)
