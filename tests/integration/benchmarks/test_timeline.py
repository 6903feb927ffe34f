"""`benchmarks.timeline` watches functions by their names: all of them exist, in the parent and in the GPU process."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.published import ROOT

#: Wraps the product's functions, so in a process of its own.
PROGRAM = """
from pathlib import Path
from types import SimpleNamespace

from benchmarks.host_log import HostLog
from benchmarks.timeline import Timeline
from benchmarks.timeline_process import GpuLog, observe

observe(HostLog(), GpuLog(), Path("log.json"))
Timeline(SimpleNamespace(gpu_busy_seconds=lambda: 0.0), Path("log.json"))
print("all there")
"""


def test_everything_that_is_watched_exists() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "all there\n", done.stderr
