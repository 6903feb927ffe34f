"""A wait that takes too long ends the process with its reason and leaves no child processes."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from benchmarks import serving
from benchmarks.serving import wait_ready
from benchmarks.waiting import EXIT_LATE
from tests.fleet import eventually

#: Stuck in a call that neither a signal nor an exception ends, with a child that would outlive it.
STUCK = """
import pathlib, subprocess, sys, threading
from benchmarks.waiting import within
folder = pathlib.Path(sys.argv[1])
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
(folder / "child").write_text(str(child.pid))
(folder / "service.log").write_text("the port is taken")
with within(0.5, "the service is ready", folder):
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
"""
SERVED = """
import time
from benchmarks.postgres import running_postgres
from benchmarks.waiting import within
with running_postgres() as postgres, within(0.5, "it holds"):
    print("server", postgres.server.get_pid(), postgres.folder, flush=True)
    time.sleep(600)
"""
#: Prints only if nobody kills it.
DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(20)
print("ended by itself")
"""
WELL = """
from benchmarks.waiting import until, within
with within(60, "it holds"):
    until(lambda: True)
"""


def run(text: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", text, *words], capture_output=True, text=True, timeout=120)


def test_a_wait_that_is_too_long_ends_with_the_reason_the_log_and_the_place(tmp_path: Path) -> None:
    done = run(STUCK, str(tmp_path))
    assert done.returncode == EXIT_LATE
    assert "waiting until the service is ready (at most 0.5 s)" in done.stdout
    assert "FAILED: after 0.5 s it is still not so that the service is ready" in done.stderr
    assert "the port is taken" in done.stderr
    assert "most recent call first" in done.stderr
    child = int((tmp_path / "child").read_text())
    eventually(lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE)


def test_a_wait_that_is_too_long_leaves_no_database() -> None:
    done = run(SERVED)
    assert done.returncode == EXIT_LATE, done.stderr
    _, pid, folder = next(line for line in done.stdout.splitlines() if line.startswith("server ")).split()
    eventually(lambda: not psutil.pid_exists(int(pid)))
    shutil.rmtree(folder)


def test_a_wait_that_ends_in_time_says_how_long_it_took() -> None:
    done = run(WELL)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^\d\d:\d\d:\d\d it holds: \d+\.\d s$", done.stdout, re.MULTILINE)


def test_a_server_that_accepts_and_never_answers_is_not_waited_for_for_ever() -> None:
    command = [sys.executable, "-c", "input()"]
    with socket.create_server(("127.0.0.1", 0)) as silent, subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        try:
            with pytest.raises(RuntimeError, match=r"not ready within 0\.2 s: see its log"):
                wait_ready(silent.getsockname()[1], child, within_seconds=0.2)
        finally:
            child.kill()


def test_a_server_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "_END_SECONDS", 0.2)
    log = tmp_path / "log"
    with (
        pytest.raises(subprocess.TimeoutExpired),
        serving.process([sys.executable, "-c", DEAF], log, wait=False),
    ):
        eventually(lambda: "deaf" in log.read_text())
    assert "ended by itself" not in log.read_text()
