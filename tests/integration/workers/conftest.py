"""Fake child processes: scripts that log their actions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

#: Text of a script with `{root}` and `{log}` in it, and what else it names, to the script's path.
Script = Callable[..., str]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def script(tmp_path: Path, log: Path) -> Script:
    def write(text: str, **named: str) -> str:
        path = tmp_path / "process.py"
        path.write_text(text.format(root=str(Path(__file__).resolve().parents[3]), log=str(log), **named))
        return str(path)

    return write
