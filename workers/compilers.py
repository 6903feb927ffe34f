"""Compilers: child processes that compile, since NVRTC's threads wait for one another within a process.

A child is started when all others are busy, compiles one source at a time, and is kept. It is spawned, never forked,
and ends when its pipe closes.
"""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Final

from workers.build import Build, BuildFailure, compile_source, nvrtc_version
from workers.errors import CacheError
from workers.framing import Hangup, receive, send
from workers.supervisor import Died, Supervisor

#: Limit for one source; the largest kernels take some seconds on a busy machine.
DEADLINE_SECONDS: Final = 60.0
#: Processes that may end at one source before the source is to blame: something outside may have ended one.
TRIES: Final = 2
#: Compilers fill every core; the process that feeds the GPU has priority.
NICER: Final = 5

_PROCESS: Final = ("-m", "workers.compilers")


class Compilers:
    """A pool of child processes, as many as were busy at once. Several threads may use it.

    Args:
        process: what to start, as arguments of the interpreter.
    """

    def __init__(self, process: Sequence[str] = _PROCESS) -> None:
        self._process = process
        self._idle: SimpleQueue[Supervisor] = SimpleQueue()

    def compile(self, source: str, arch: str, digest: str) -> Build | BuildFailure:
        """`compile_source` in a child process; a source at which processes end or hang is a failed build.

        Raises:
            CacheError: NVRTC does not answer.
            ProcessError: no process can be started.
        """
        try:
            child = self._idle.get_nowait()
        except Empty:
            child = Supervisor(self._process, "compiler")
        try:
            return self._asked(child, source, arch, digest)
        finally:
            self._idle.put(child)

    def close(self) -> None:
        """Ends the processes; none may be busy."""
        with suppress(Empty):
            while True:
                self._idle.get_nowait().close()

    def _asked(self, child: Supervisor, source: str, arch: str, digest: str) -> Build | BuildFailure:
        reason = ""
        for _ in range(TRIES):
            try:
                return _made(child.ask({"source": source, "arch": arch}, DEADLINE_SECONDS), digest)
            except Died as death:
                # The next question starts another process.
                reason = str(death)
                if death.hung:
                    break
        return BuildFailure(reason, reason)


def _made(answer: dict[str, Any], digest: str) -> Build | BuildFailure:
    if "error" in answer:
        raise CacheError(answer["error"])
    if "reason" in answer:
        return BuildFailure(answer["reason"], answer["log"])
    if answer["nvrtc"] != nvrtc_version():
        # The digest, and all evidence, would name another compiler.
        raise CacheError(
            f"a compiler process found NVRTC {answer['nvrtc']}, and this process has {nvrtc_version()}: keep one "
            "nvidia-cuda-nvrtc where Python looks for packages"
        )
    cubin = base64.b64decode(answer["cubin"])
    return Build(digest, cubin, answer["registers"], tuple(answer["warnings"]), answer["nvrtc"], answer["seconds"])


def _answer(question: dict[str, Any]) -> dict[str, Any]:
    try:
        made = compile_source(question["source"], question["arch"], None)
    except CacheError as error:
        return {"error": str(error)}
    if isinstance(made, BuildFailure):
        return {"reason": made.reason, "log": made.log}
    return {
        "cubin": base64.b64encode(made.cubin).decode(), "registers": made.registers, "warnings": made.warnings,
        "nvrtc": made.nvrtc, "seconds": made.seconds,
    }  # fmt: skip


def main(read_fd: int, write_fd: int) -> None:
    """Answers until the parent hangs up."""
    os.nice(NICER)
    with suppress(Hangup):
        while True:
            send(write_fd, _answer(receive(read_fd)))
    # The parent may be waiting, and an orderly exit of the libraries is slow.
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
