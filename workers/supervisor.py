"""Supervisor: keeps one child process alive, the GPU's or a compiler, and gives every question a deadline."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any, Final

from workers.build import nvrtc_library
from workers.errors import ProcessError
from workers.framing import Hangup, Silence, receive, send

_STDERR_TAIL_BYTES = 600
_PR_SET_PDEATHSIG: Final = 1
#: How long a killed process may take to end. A driver may hold one for ever in a call that no signal interrupts.
END_SECONDS: Final = 60.0
#: Starts all children: the kernel kills them when the thread that started them ends, which a caller's may do any time.
_STARTER = ThreadPoolExecutor(1, "start-child")


def _begin_anew() -> None:
    """Gives a forked process a starter of its own: it has no thread but the one that forked."""
    global _STARTER
    _STARTER = ThreadPoolExecutor(1, "start-child")


os.register_at_fork(after_in_child=_begin_anew)


class Died(Exception):
    """The process is gone: it hung past its deadline, or exited.

    Attributes:
        hung: whether it was killed for its silence.
    """

    def __init__(self, message: str, hung: bool) -> None:
        super().__init__(message)
        self.hung = hung


class LostContext(Exception):
    """A CUDA error that the process reports.

    Attributes:
        name: as in `CUDA_ERROR_ILLEGAL_ADDRESS`.
        lost: whether its context, and so the process, went with it.
    """

    def __init__(self, message: str, name: str, lost: bool) -> None:
        super().__init__(message)
        self.name = name
        self.lost = lost


def _importing_as_here(command: Sequence[str]) -> list[str]:
    """A command that imports from where this process does, compiles with its NVRTC, and is killed when it ends.

    `-m` would put the user's folder first, and a `workers` or `space` there is none of ours. PyTorch loads the NVRTC
    that it brings; a process without PyTorch may find another one, whose builds are not those that this process names.
    """
    if command[0] != "-m":
        return list(command)
    nvrtc = nvrtc_library()
    load = f"ctypes.CDLL({nvrtc!r}); " if nvrtc else ""
    run = f"runpy.run_module({command[1]!r}, run_name='__main__', alter_sys=True)"
    # Imports skip what is no text, as a `Path` that a program has put there.
    paths = [each for each in sys.path if isinstance(each, str)]
    end = f"ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, {signal.SIGKILL:d}); "
    return ["-P", "-c", f"import ctypes, runpy, sys; {end}sys.path[:] = {paths!r}; {load}{run}", *command[2:]]


class Supervisor:
    """One child process that answers JSON documents; its process group is killed when it does not answer.

    Args:
        command: arguments after the interpreter; two file descriptors, to read and to write, are appended.
        called: name of the process in messages.
    """

    def __init__(self, command: Sequence[str], called: str = "GPU process") -> None:
        self._command, self._called = list(command), called
        self._process: subprocess.Popen[bytes] | None = None
        self._to_child = self._from_child = -1
        self._stderr: IO[bytes] | None = None
        self._closed = False
        #: Held by the thread that sends or waits: only it closes the pipes, whose descriptors others could reuse.
        self._pipes = threading.Lock()

    @property
    def alive(self) -> bool:
        """Whether the process exists."""
        return self._process is not None

    def ask(self, document: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Asks the process, and starts one where there is none.

        Raises:
            Died: it did not answer in time, or ended. It is gone now; the next question starts another.
            ProcessError: no process can be started.
        """
        self.tell(document, seconds)
        return self.hear(seconds)

    def tell(self, document: dict[str, Any], seconds: float | None = None) -> None:
        """Sends a question, and starts a process where there is none.

        Args:
            seconds: how long the process may take to read what its pipe does not hold, 64 KiB on Linux.

        Raises:
            Died: it did not read in time. It is gone now.
            ProcessError: no process can be started, or one that was killed does not end.
        """
        with self._pipes:
            if self._process is None:
                self._spawn()
            try:
                send(self._to_child, document, seconds)
            except Hangup:
                # The process has ended; `hear` reports it, with its last words.
                return
            except Silence:
                raise self._silent(seconds) from None

    def hear(self, seconds: float) -> dict[str, Any]:
        """The oldest answer that was not received yet.

        Raises:
            Died: there was none in time, or the process ended. It is gone now.
            ProcessError: the process was killed and does not end.
        """
        with self._pipes:
            if self._process is None or self._closed:
                # One that was closed while it was being started is still there.
                self.kill()
                raise Died(f"the {self._called} is not running", hung=False)
            try:
                return receive(self._from_child, seconds)
            except Silence:
                raise self._silent(seconds) from None
            except Hangup as error:
                status = self.kill()
                said = f"({_ending(status)}; {error}){self._last_words()}"
                raise Died(f"the {self._called} ended {said}", hung=False) from None

    def _silent(self, seconds: float | None) -> Died:
        self.kill()
        return Died(f"no answer within {seconds:g} s; the {self._called} was killed", hung=True)

    def kill(self) -> int | None:
        """Kills the process group; returns the exit status, None where there was no process.

        Raises:
            ProcessError: the process does not end.
        """
        process, self._process = self._process, None
        if process is None:
            return None
        os.close(self._to_child)
        # A process that had already ended keeps its own status.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        try:
            return process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            raise ProcessError(
                f"the {self._called}, process {process.pid}, was killed and does not end: a driver may hold it; "
                f"look for Xid errors in dmesg, and restart the machine"
            ) from None
        finally:
            os.close(self._from_child)

    def close(self) -> None:
        """Ends the process for good, from any thread: one that waits for an answer gets `Died`, and starts no other.

        Raises:
            ProcessError: it does not end.
        """
        self._closed = True
        if not self._pipes.acquire(blocking=False):
            # The pipes hang up with the process, and whoever waits at them closes them.
            if (process := self._process) is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            if not self._pipes.acquire(timeout=END_SECONDS):
                raise ProcessError(f"the {self._called} was killed and does not end: restart this process")
        try:
            self.kill()
        finally:
            if self._stderr is not None:
                self._stderr.close()
            self._pipes.release()

    def _spawn(self) -> None:
        if self._closed:
            raise ProcessError(f"the {self._called} was closed: open the device again")
        ends: list[int] = []
        try:
            ends += os.pipe()
            ends += os.pipe()
            child_reads, self._to_child, self._from_child, child_writes = ends
            self._stderr = self._stderr or tempfile.TemporaryFile()  # noqa: SIM115  (closed by `close`)
            self._stderr.seek(0)
            self._stderr.truncate()
            # Where the starter's thread can't be started, what it was to do is done later.
            _STARTER.submit(int).result()
            # Spawned, never forked: no state of this process reaches the one that owns the context.
            self._process = _STARTER.submit(
                subprocess.Popen,
                [sys.executable, *_importing_as_here(self._command), str(child_reads), str(child_writes)],
                pass_fds=(child_reads, child_writes),
                stdin=subprocess.DEVNULL,
                stdout=self._stderr,
                stderr=self._stderr,
                start_new_session=True,
            ).result()
        except (OSError, RuntimeError) as error:
            for end in ends:
                os.close(end)
            said = error.strerror if isinstance(error, OSError) else error
            raise ProcessError(
                f"the {self._called} can't be started ({said}): free memory, disk space, files or processes"
            ) from error
        os.close(child_reads)
        os.close(child_writes)

    def _last_words(self) -> str:
        if self._stderr is None:
            return ""
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(size - _STDERR_TAIL_BYTES, 0))
        words = self._stderr.read().decode(errors="replace").strip()
        return f": {words}" if words else ""


def _ending(status: int | None) -> str:
    if status is not None and status < 0:
        # Only the first and the last real-time signal have names.
        with contextlib.suppress(ValueError):
            return f"signal {signal.Signals(-status).name}"
        return f"signal {-status}"
    return f"exit status {status}"
