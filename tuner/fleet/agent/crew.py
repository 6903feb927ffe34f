"""The crew: one agent process a device, on a host with several. One that dies or stops is replaced.

Between the crew and each member is a pipe. The member writes a byte into it every second, so that one that hangs
or was stopped is told from one that works; and when the crew dies, the member notices at its next byte, reports
its round and leaves. What a member measures goes to the service, never through here.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from tuner.exits import EXIT_DONE, EXIT_INPUT

_log = logging.getLogger("gemmtune.crew")
_PULSE_SECONDS: Final = 1.0
#: A member that is silent for so long is killed. The service has given its round to another by then.
SILENCE_SECONDS: Final = 30.0
#: A member that died is started again after so long; doubled each time, up to the second one.
_FIRST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 60.0
#: One that lived for so long starts with the first pause again.
_WELL_SECONDS: Final = 60.0
#: Ends that another start would not change: it left as it was told to, or what it was given is wrong.
_FOR_GOOD: Final = (EXIT_DONE, EXIT_INPUT)


def beat_for_crew(fd: int, leave: Callable[[], None]) -> None:
    """Tells the crew from now on that this process runs; `leave` is called when there is no crew any more.

    Args:
        fd: the end of the pipe that the crew gave.
    """

    def beat() -> None:
        while True:
            try:
                os.write(fd, b".")
            except BlockingIOError:
                pass  # the crew sleeps: it finds enough when it wakes
            except OSError:
                _log.warning("the crew is gone: leaving")
                leave()
                return
            time.sleep(_PULSE_SECONDS)

    os.set_blocking(fd, False)
    threading.Thread(target=beat, name="pulse", daemon=True).start()


class Member:
    """One device and the process that works on it.

    Args:
        command: of the process; the pipe's end is appended to it.

    Attributes:
        starts: how often it was started.
        code: with which it ended for good; None before.
    """

    def __init__(self, device: str, command: Sequence[str], silence_seconds: float = SILENCE_SECONDS) -> None:
        self.device, self._command, self._silence_seconds = device, tuple(command), silence_seconds
        self.starts = 0
        self.code: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = -1
        self._pause = _FIRST_PAUSE_SECONDS
        self._start_at = self._started_at = self._heard_at = 0.0

    @property
    def pid(self) -> int | None:
        """Of the process, while there is one."""
        return self._process.pid if self._process else None

    def look(self, leaving: bool) -> None:
        """Starts, buries or kills the process, as its state asks for.

        Args:
            leaving: nobody is started any more.
        """
        if self.code is not None:
            return
        now = time.monotonic()
        if self._process is None:
            if leaving:
                self.code = EXIT_DONE
            elif now >= self._start_at:
                self._start(now)
            return
        if (code := self._process.poll()) is not None:
            self._bury(code, now, leaving)
            return
        with suppress(BlockingIOError):
            while os.read(self._pipe, 4096):
                self._heard_at = now
        if now - self._heard_at > self._silence_seconds:
            _log.error("%s: process %d is silent for %g s: killed", self.device, self.pid, self._silence_seconds)
            self._process.kill()
            self._heard_at = now

    def send(self, number: signal.Signals) -> None:
        """Sends the process a signal, if there is one."""
        if self._process is not None:
            self._process.send_signal(number)

    def _start(self, now: float) -> None:
        self._pipe, theirs = os.pipe()
        os.set_blocking(self._pipe, False)
        try:
            # A session of its own: Ctrl-C at a terminal is for the crew, which tells its members.
            self._process = subprocess.Popen(
                [*self._command, str(theirs)], pass_fds=(theirs,), stdin=subprocess.DEVNULL, start_new_session=True
            )
        finally:
            os.close(theirs)
        self.starts += 1
        self._started_at = self._heard_at = now
        _log.info("%s: process %d", self.device, self._process.pid)

    def _bury(self, code: int, now: float, leaving: bool) -> None:
        pid, self._process = self.pid, None
        os.close(self._pipe)
        if code in _FOR_GOOD or leaving:
            _log.info("%s: process %d ended with %d", self.device, pid, code)
            self.code = code
            return
        if now - self._started_at > _WELL_SECONDS:
            self._pause = _FIRST_PAUSE_SECONDS
        _log.error("%s: process %d ended with %d: another one starts in %g s", self.device, pid, code, self._pause)
        self._start_at = now + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)


class Crew:
    """All members of a host.

    Args:
        members: one a device, at least one.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = tuple(members)
        self._asked = 0

    def leave(self) -> None:
        """Asks every member to report its round and end; asked again, ends them at once. For signal handlers."""
        self._asked += 1

    def run(self, pause_seconds: float = 0.2) -> int:
        """Until every member has left.

        Returns:
            The exit code of one that did not end well, as a shell counts it; 0 when all did.
        """
        told = 0
        while any(member.code is None for member in self.members):
            if self._asked > told:
                told += 1
                for member in self.members:
                    # Twice: what an agent takes as "at once". From then on nobody is asked.
                    member.send(signal.SIGTERM if told <= 2 else signal.SIGKILL)
            for member in self.members:
                member.look(leaving=told > 0)
            time.sleep(pause_seconds)
        return max(_shell_code(member.code or EXIT_DONE) for member in self.members)


def _shell_code(code: int) -> int:
    # Told to leave before it could listen: it had nothing to report.
    if code == -signal.SIGTERM:
        return EXIT_DONE
    return code if code >= 0 else 128 - code
