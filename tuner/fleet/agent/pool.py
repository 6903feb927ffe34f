"""Agent pool: one agent process per device, on a host with several. A process that dies or hangs is replaced.

A pipe connects the pool with each process. The process writes a byte into it every second, which tells a working
process from one that hangs or was stopped. If the pool dies, the next write fails, and the process reports its round
and leaves. Measurements go straight to the service, never through the pool.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Final

from tuner.exits import EXIT_DEVICE, EXIT_DONE, EXIT_INPUT, EXIT_SERVICE
from tuner.settings import END_SECONDS

_log = logging.getLogger("gemmtune.pool")
_LIVENESS_SECONDS: Final = 1.0
#: A process that is silent for this long is killed. By then the service has given its round to another worker.
SILENCE_SECONDS: Final = 30.0
#: Delay before a dead process is restarted; doubled each time, up to the longest.
_FIRST_DELAY_SECONDS: Final = 1.0
_LONGEST_DELAY_SECONDS: Final = 60.0
#: A process that ran for this long starts over with the first delay.
_HEALTHY_SECONDS: Final = 60.0
#: From the first call to `leave`, a process that has not ended after this long is killed. Longer than its own limit.
_END_SECONDS: Final = END_SECONDS + 1.5
#: Exit codes after which a restart is pointless: the process left as asked, or its arguments are wrong.
FINAL: Final = (EXIT_DONE, EXIT_INPUT)
#: The same where somebody waits for the end: the device or the service can't be used, which the process has retried.
FINAL_ONCE: Final = (*FINAL, EXIT_DEVICE, EXIT_SERVICE)


def report_liveness(fd: int, leave: Callable[[], None]) -> None:
    """Starts a thread that tells the pool every second that this process is alive.

    Args:
        fd: write end of the pool's pipe.
        leave: called when the pool is gone.
    """

    def beat() -> None:
        while True:
            try:
                os.write(fd, b".")
            except BlockingIOError:
                pass  # the pipe is full because the pool is stopped; it has enough to read when it continues
            except OSError:
                _log.warning("the pool is gone: leaving")
                leave()
                return
            time.sleep(_LIVENESS_SECONDS)

    os.set_blocking(fd, False)
    threading.Thread(target=beat, name="liveness", daemon=True).start()


class AgentProcess:
    """One device and the process that works on it.

    Args:
        command: command line of the process; the descriptor of the pipe's write end is appended.
        silence_seconds: silence after which the process is killed.
        final: exit codes after which it is not restarted.

    Attributes:
        starts: how often the process was started.
        code: exit code once the process has ended for good; None before.
    """

    def __init__(
        self, device: str, command: Sequence[str], silence_seconds: float = SILENCE_SECONDS,
        final: Collection[int] = FINAL,
    ) -> None:  # fmt: skip
        self.device, self._command, self._silence_seconds = device, tuple(command), silence_seconds
        self._final = final
        self.starts = 0
        self.code: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = -1
        self._delay = _FIRST_DELAY_SECONDS
        self._start_at = self._started_at = self._heard_at = 0.0

    @property
    def pid(self) -> int | None:
        """The process id; None while no process runs."""
        return self._process.pid if self._process else None

    def poll(self, leaving: bool) -> None:
        """Starts, reaps or kills the process, depending on its state.

        Args:
            leaving: start no process any more.
        """
        if self.code is not None:
            return
        now = time.monotonic()
        if self._process is None:
            if leaving:
                self.code = EXIT_DONE
            elif now >= self._start_at:
                try:
                    self._start(now)
                except OSError as error:
                    # The other processes go on: a machine without memory or process numbers may have some again.
                    _log.error(
                        "%s: no process can be started (%s): restarting in %g s", self.device, error, self._delay
                    )
                    self._put_off(now)
            return
        if (code := self._process.poll()) is not None:
            self._reap(code, now, leaving)
            return
        with suppress(BlockingIOError):
            while os.read(self._pipe, 4096):
                self._heard_at = now
        if now - self._heard_at > self._silence_seconds:
            _log.error("%s: process %d was silent for %g s: killed", self.device, self.pid, self._silence_seconds)
            self._process.kill()
            self._heard_at = now

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the process, if one runs."""
        if self._process is not None:
            self._process.send_signal(number)

    def _start(self, now: float) -> None:
        self._pipe, theirs = os.pipe()
        os.set_blocking(self._pipe, False)
        try:
            # In a session of its own, because Ctrl-C at a terminal is for the pool, which then stops its processes.
            self._process = subprocess.Popen(
                [*self._command, str(theirs)], pass_fds=(theirs,), stdin=subprocess.DEVNULL, start_new_session=True
            )
        except OSError:
            os.close(self._pipe)
            raise
        finally:
            os.close(theirs)
        self.starts += 1
        self._started_at = self._heard_at = now
        _log.info("%s: process %d", self.device, self._process.pid)

    def _reap(self, code: int, now: float, leaving: bool) -> None:
        pid, self._process = self.pid, None
        os.close(self._pipe)
        if code in self._final or leaving:
            _log.info("%s: process %d exited with code %d", self.device, pid, code)
            self.code = code
            return
        if now - self._started_at > _HEALTHY_SECONDS:
            self._delay = _FIRST_DELAY_SECONDS
        _log.error("%s: process %d exited with code %d: restarting in %g s", self.device, pid, code, self._delay)
        self._put_off(now)

    def _put_off(self, now: float) -> None:
        """Makes the next start wait."""
        self._start_at = now + self._delay
        self._delay = min(2 * self._delay, _LONGEST_DELAY_SECONDS)


class AgentPool:
    """The agent processes of a host.

    Args:
        processes: one per device, at least one.
    """

    def __init__(self, processes: Sequence[AgentProcess]) -> None:
        self.processes = tuple(processes)
        self._leave_calls = 0

    def leave(self) -> None:
        """Makes every process report its round and end; a further call ends them at once. For signal handlers."""
        self._leave_calls += 1

    def run(self, pause_seconds: float = 0.2) -> int:
        """Runs until every process has left.

        Returns:
            0 if every process ended normally, else the largest exit code, as a shell reports it.
        """
        signalled, told_at = 0, math.inf
        while any(process.code is None for process in self.processes):
            if self._leave_calls > signalled:
                signalled, told_at = signalled + 1, min(told_at, time.monotonic())
                for process in self.processes:
                    # An agent ends at once on its second SIGTERM; a third call to `leave` kills it.
                    process.send(signal.SIGTERM if signalled <= 2 else signal.SIGKILL)
            if time.monotonic() - told_at > _END_SECONDS:
                # Stopped, or stuck where no signal reaches it.
                for process in self.processes:
                    process.send(signal.SIGKILL)
            for process in self.processes:
                process.poll(leaving=signalled > 0)
            time.sleep(pause_seconds)
        return max(_shell_code(process.code or EXIT_DONE) for process in self.processes)


def _shell_code(code: int) -> int:
    # Terminated before it installed its signal handler: it had nothing to report.
    if code == -signal.SIGTERM:
        return EXIT_DONE
    return code if code >= 0 else 128 - code
