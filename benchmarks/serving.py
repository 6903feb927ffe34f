"""Starts servers in their own processes for benchmarks over HTTP."""

from __future__ import annotations

import math
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx2

from benchmarks.ports import free_port
from benchmarks.published import ROOT

#: A million bests are served within a quarter of it, also on a slow machine.
_READY_WITHIN_SECONDS: Final = 120.0
#: A server that was told to end is killed after this: what waits for it would wait for ever.
_END_SECONDS: Final = 40.0
#: Before a server's command: what it imports is compiled once, as where pip installed it, whatever this shell tells
#: Python.
_COMPILED: Final = ("env", "--unset=PYTHONDONTWRITEBYTECODE")


@dataclass(frozen=True, slots=True)
class Running:
    """A server under test.

    Attributes:
        seconds_to_ready: from the start of its process, if anyone waited for that.
        began: `time.monotonic` at the start of its process.
    """

    port: int
    pid: int
    seconds_to_ready: float = math.nan
    began: float = math.nan

    def memory_mb(self, line: str) -> float:
        """`VmRSS`, or `VmHWM` for the highest so far."""
        text = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(rf"{line}:\s+(\d+) kB", text)[1]) / 1000  # type: ignore[index]


def compile_imports() -> None:
    """Compiles what the service imports, so that its first start is like the others."""
    subprocess.run([*_COMPILED, sys.executable, "-c", "import gemmtune.serve"], cwd=ROOT, check=True)


@contextmanager
def serving(folder: Path, db: Path | str, auth: str = "on", wait: bool = True) -> Iterator[Running]:
    """The service.

    Args:
        db: path or URL of its store.
        wait: until it is ready.
    """
    command = [sys.executable, "-m", "gemmtune", "serve", "--db", str(db), "--auth", auth]
    command = ["env", "GEMMTUNE_REQUESTS_PER_SECOND=1000000", *command, "--port"]
    with process(command, folder / "service.log", wait=wait) as running:
        yield running


@contextmanager
def process(command: list[str], log: Path, *behind: str, wait: bool = True) -> Iterator[Running]:
    """Runs `[*command, port, *behind]` on a free port until the block ends."""
    port, began = free_port(), time.monotonic()
    command = [*_COMPILED, *command, str(port), *behind]
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as child:
        try:
            if wait:
                wait_ready(port, child)
            yield Running(port, child.pid, time.monotonic() - began if wait else math.nan, began)
        finally:
            child.send_signal(signal.SIGTERM)
            try:
                child.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
                raise


def wait_ready(port: int, child: subprocess.Popen[bytes], within_seconds: float = _READY_WITHIN_SECONDS) -> None:
    """Waits until the server is ready; the bare endpoint is ready when it answers.

    Raises:
        RuntimeError: the server ended, or was not ready in time.
    """
    until = time.monotonic() + within_seconds
    # One client: each reads the machine's certificates anew, which would take time from the server.
    with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=min(5.0, within_seconds)) as http:
        while child.poll() is None:
            if time.monotonic() > until:
                raise RuntimeError(f"the server on port {port} was not ready within {within_seconds:g} s: see its log")
            try:
                if http.get("/readyz").status_code in (200, 404):
                    return
            except httpx2.TransportError:
                pass
            time.sleep(0.05)
    raise RuntimeError(f"the server ended with {child.returncode}")
