"""The agent pool with real processes: it replaces those that die or hang but not those that leave, and stops all."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from tests.fleet import eventually
from tuner.exits import EXIT_DEVICE, EXIT_DONE, EXIT_INPUT, EXIT_SERVICE
from tuner.fleet.agent.pool import FINAL, FINAL_ONCE, AgentPool, AgentProcess, report_liveness

#: A process that reports its liveness until it is told to leave, and appends its id to a file at each start.
BODY = """
import os, signal, sys, threading
from tuner.fleet.agent.pool import report_liveness
leaving = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: leaving.set())
report_liveness(int(sys.argv[-1]), leaving.set)
with open(sys.argv[1], "a") as marks:
    marks.write(f"{os.getpid()}\\n")
while not leaving.wait(0.05):
    pass
sys.exit(int(sys.argv[2]))
"""


class Host:
    """A pool in a thread of its own."""

    def __init__(
        self, folder: Path, processes: int = 2, code: int = 0, silence_seconds: float = 30.0,
        final: Collection[int] = FINAL,
    ) -> None:  # fmt: skip
        self._marks = [folder / f"{place}.txt" for place in range(processes)]
        self.pool = AgentPool([
            AgentProcess(f"device {path.stem}", [sys.executable, "-c", BODY, str(path), str(code)], silence_seconds,
                         final)
            for path in self._marks
        ])  # fmt: skip
        self.code: int | None = None
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        self.code = self.pool.run(0.02)

    def __enter__(self) -> Host:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.leave()
        self._thread.join()

    def started(self, place: int) -> list[int]:
        """Ids of the processes that were ready on one device, in order."""
        path = self._marks[place]
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def ready(self, *counts: int) -> bool:
        """True if each device's process became ready this many times."""
        return [len(self.started(place)) for place in range(len(self._marks))] == list(counts)

    @property
    def ended(self) -> bool:
        return self.code is not None


def test_a_process_that_is_killed_or_stopped_is_replaced_and_all_leave_when_told(tmp_path: Path) -> None:
    with Host(tmp_path, silence_seconds=5.0) as host:
        eventually(lambda: host.ready(1, 1))
        os.kill(host.started(0)[0], signal.SIGKILL)
        os.kill(host.started(1)[0], signal.SIGSTOP)
        eventually(lambda: host.ready(2, 2))
        assert len({*host.started(0), *host.started(1)}) == 4
        host.pool.leave()
        eventually(lambda: host.ended)
    assert host.code == 0


@pytest.mark.parametrize(
    ("code", "final"),
    [(EXIT_DONE, FINAL), (EXIT_INPUT, FINAL), (EXIT_DEVICE, FINAL_ONCE), (EXIT_SERVICE, FINAL_ONCE)],
)
def test_a_member_that_left_or_has_wrong_input_is_not_replaced(
    tmp_path: Path, code: int, final: Collection[int]
) -> None:
    with Host(tmp_path, code=code, final=final) as host:
        eventually(lambda: host.ready(1, 1))
        for place in range(2):
            os.kill(host.started(place)[0], signal.SIGTERM)
        eventually(lambda: host.ended)
        assert host.ready(1, 1)
    assert host.code == code


def test_a_process_that_cannot_be_started_ends_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started, refused = subprocess.Popen, [False, True]

    def without_memory(*words: Any, **named: Any) -> Any:  # noqa: ANN401
        if refused and refused.pop(0):
            raise OSError(errno.ENOMEM, "Cannot allocate memory")
        return started(*words, **named)

    monkeypatch.setattr(subprocess, "Popen", without_memory)
    with Host(tmp_path) as host:
        eventually(lambda: host.ready(1, 1))
        host.pool.leave()
        eventually(lambda: host.ended)
    assert host.code == 0


def test_processes_leave_when_their_pool_is_gone() -> None:
    ours, theirs = os.pipe()
    left = threading.Event()
    report_liveness(theirs, left.set)
    assert os.read(ours, 1) == b"."
    os.close(ours)
    assert left.wait(30)
    os.close(theirs)


def test_a_pool_that_does_not_read_does_not_block_its_processes() -> None:
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    fill(theirs)
    left = threading.Event()
    report_liveness(theirs, left.set)
    assert not left.is_set()
    os.close(ours)
    assert left.wait(30)
    os.close(theirs)


def fill(fd: int) -> None:
    """Fills the pipe."""
    try:
        while os.write(fd, b"x" * 4096):
            pass
    except BlockingIOError:
        return
