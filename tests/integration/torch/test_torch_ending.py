"""Programs that end: what still has to be verified is left, and threads that go on computing can.

`make test-torch` runs it with the CPU build of PyTorch.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

ENDS = """
import time
from concurrent.futures import thread
from gemmtune.torch import proofs

def verify():
    while not thread._shutdown:
        time.sleep(0.01)

assert proofs.in_background(verify)
assert proofs.in_background(lambda: print("verified"))
print("ended")
"""
GOES_ON = """
import threading
import torch
from gemmtune.torch import proofs, streams

def serve():
    threading.main_thread().join()
    print(streams.elsewhere(torch.ones, 2).tolist(), proofs.in_background(print))

threading.Thread(target=serve).start()
"""


@pytest.mark.parametrize(("program", "printed"), [(ENDS, "ended\n"), (GOES_ON, "[1.0, 1.0] False\n")])
def test_a_program_ends(program: str, printed: str) -> None:
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ran.stdout, ran.stderr) == (printed, "")
