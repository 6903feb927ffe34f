"""Standard streams that are closed, or a file on a full disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def ran(words: str, home: Path) -> subprocess.CompletedProcess[str]:
    """What a shell does with `words`, in which `gemmtune` is the command."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GEMMTUNE_")}
    line = words.replace("gemmtune", f"'{sys.executable}' -m gemmtune", 1)
    return subprocess.run(["bash", "-c", line], env=kept | {"HOME": str(home)}, capture_output=True,
                          text=True, timeout=300)  # fmt: skip


@pytest.mark.parametrize("closed", ["1>&-", "2>&-", "0<&- 1>&- 2>&-"])
@pytest.mark.parametrize(("words", "code"), [("space 64x64x64", 0), ("space 64", 3)])
def test_closed_streams_change_no_exit_code(tmp_path: Path, words: str, code: int, closed: str) -> None:
    done = ran(f"gemmtune {words} {closed}", tmp_path)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False)


@pytest.mark.parametrize("words", ["space 64x64x64", "space 64x64x64 --json", "--help"])
def test_an_output_without_space_is_one_sentence(tmp_path: Path, words: str) -> None:
    done = ran(f"gemmtune {words} > /dev/full", tmp_path)
    assert done.returncode == 5
    assert done.stderr.startswith("gemmtune: the output can't be written (No space left on device): free space")
    assert done.stderr.count("\n") == 1
