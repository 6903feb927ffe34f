"""A terminal that runs a page's blocks: bash for the commands, this process for `gemmtune` and for Python.

A process of its own for every `gemmtune …` would take most of the time. The terminal puts a small `gemmtune` on the
path instead, which passes its words to the test and prints what comes back.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.pages import ENDLESS, PROGRAMS, ROOT, Block
from tests.shell import Shell

#: Passes words, folder and settings on; prints what comes back.
_GEMMTUNE: Final = """#!{python} -SE
import json, os, socket, sys
to = socket.socket(socket.AF_UNIX)
to.connect({socket!r})
kept = {{name: value for name, value in os.environ.items() if name.startswith("GEMMTUNE_")}}
to.sendall(json.dumps([sys.argv[1:], os.getcwd(), kept]).encode() + b"\\n")
code, out, err = json.loads(to.makefile().read())
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(code)
"""
#: Between two interrupts of what takes too long: one that comes while Python collects garbage is lost.
_AGAIN_SECONDS: Final = 5.0
#: Continuous integration runs the targets themselves; here they are resolved.
_MAKE: Final = "#!/bin/sh\nexec {make} --dry-run --directory {root} \"$@\"\n"
_BEFORE: Final = """
ran() { eval "$2" > "$RESULTS/$1.out" 2> "$RESULTS/$1.err"; echo $? > "$RESULTS/$1.code"; }
"""


@dataclass(frozen=True, slots=True)
class Typed:
    """One command or program of a page, and what it did."""

    block: Block
    text: str
    shown: str
    code: int
    said: str

    def __str__(self) -> str:
        return f"{self.block.name}: {self.text}\nended with {self.code}: {self.said}"


class Terminal:
    """Runs pages in a home folder of their own.

    Args:
        environment: GEMMTUNE_* variables.
        url: the service that stands in for the one at 127.0.0.1:8643.
        seconds: for a whole page. Then the running command gets Ctrl-C and ends with 130; later ones are not run.
    """

    def __init__(self, home: Path, environment: Mapping[str, str], url: str, seconds: float = 600) -> None:
        self._home, self._url, self._ends = home, url, time.monotonic() + seconds
        self._shell = Shell(home, environment)
        self._names: dict[str, Any] = {"__name__": "__main__"}
        self._programs: dict[str, Block] = {}

    def run(self, blocks: list[Block]) -> list[Typed]:
        """Runs blocks in their order, in one shell."""
        typed = [(block, text, shown) for block in blocks for text, shown in self._of(block)]
        results = self._home / ".results"
        results.mkdir()
        words = [f"ran {place} {shlex.quote(self._line(block, text))}" for place, (block, text, _) in enumerate(typed)]
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(results / "socket"))
            listening.listen()
            self._bin(results)
            self._serve(listening, "\n".join([_BEFORE, *words]), results)
        return [Typed(block, text, shown, *_result(results, place)) for place, (block, text, shown) in enumerate(typed)]

    def _of(self, block: Block) -> list[tuple[str, str]]:
        if block.language not in PROGRAMS:
            return block.commands()
        self._programs[block.name] = block
        return [(f"gemmtune :program {shlex.quote(block.name)}", "")]

    def _line(self, block: Block, text: str) -> str:
        """A command as it is run: curl leaves a stream without an end after a second."""
        return self._here(text.replace("curl ", "curl --max-time 1 ") if block.mark == ENDLESS else text)

    def _here(self, text: str) -> str:
        return text.replace("http://127.0.0.1:8643", self._url)

    def _bin(self, results: Path) -> None:
        folder = self._home / ".bin"
        folder.mkdir()
        make = subprocess.run(["/bin/sh", "-c", "command -v make"], capture_output=True, text=True).stdout.strip()
        files = {"gemmtune": _GEMMTUNE.format(python=sys.executable, socket=str(results / "socket")),
                 "make": _MAKE.format(make=make, root=ROOT)}  # fmt: skip
        for name, text in files.items():
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)

    def _serve(self, listening: socket.socket, script: str, results: Path) -> None:
        with self._shell.around():
            environment = os.environ | {"PATH": f"{self._home / '.bin'}:{os.environ['PATH']}", "RESULTS": str(results)}
            folder = self._home / "work"
            with (
                subprocess.Popen(["bash", "-c", script], cwd=folder, env=environment, stdin=subprocess.DEVNULL) as bash,
                selectors.DefaultSelector() as ready,
            ):
                ended = os.pidfd_open(bash.pid)
                ready.register(ended, selectors.EVENT_READ)
                ready.register(listening, selectors.EVENT_READ)
                try:
                    while not any(key.fd == ended for key, _ in ready.select()):
                        asking, _ = listening.accept()
                        with asking, asking.makefile("r") as asked:
                            asking.sendall(json.dumps(self._answer(*json.loads(asked.readline()))).encode())
                finally:
                    os.close(ended)
                    bash.kill()

    def _answer(self, words: list[str], folder: str, given: dict[str, str]) -> tuple[int, str, str]:
        if words[:1] == ["serve"]:
            return 0, "", f"serving on {self._url}\n"
        left = self._ends - time.monotonic()
        if left <= 0:
            return 130, "", "not run: the page's time was over\n"
        with contextlib.chdir(folder), _interrupted_after(left):
            if words[:1] == [":program"]:
                return self._program(self._programs[words[1]], given)
            ran = self._shell(*words, **given)
            return ran.code, ran.out, ran.err

    def _program(self, block: Block, given: dict[str, str]) -> tuple[int, str, str]:
        out = io.StringIO()
        with self._shell.around(given), contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            try:
                exec(compile(self._here(block.text), block.name, "exec"), self._names)
            except Exception:
                return 1, out.getvalue(), traceback.format_exc()
            except KeyboardInterrupt:
                return 130, out.getvalue(), traceback.format_exc()
        return 0, out.getvalue(), ""


@contextlib.contextmanager
def _interrupted_after(seconds: float) -> Iterator[None]:
    """Ctrl-C within the block, unless it ends sooner."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _result(results: Path, place: int) -> tuple[int, str]:
    read: Callable[[str], str] = lambda kind: (results / f"{place}.{kind}").read_text(errors="replace")  # noqa: E731
    return int(read("code")), read("out") + read("err")
