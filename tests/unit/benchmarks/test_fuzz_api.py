"""What schemathesis says to wrong options is what `benchmarks.fuzz_api` says."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace

import httpx2
import pytest

from benchmarks.command import WrongInput
from benchmarks.fuzz_api import ask


def test_wrong_options_are_refused_and_not_a_finding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = SimpleNamespace(returncode=2, stdout="", stderr="Usage: run\n\nError: invalid choice(s): nope.\n")
    monkeypatch.setattr(httpx2, "get", lambda url, timeout: SimpleNamespace(raise_for_status=lambda: None))
    monkeypatch.setattr(subprocess, "run", lambda command, **_: said)
    with pytest.raises(WrongInput, match=r"^Error: invalid choice\(s\): nope\.$"):
        ask("http://127.0.0.1:1", "X-Token: none", 1, "nope", tmp_path)
    said.returncode = 1
    with pytest.raises(RuntimeError, match="Usage"):
        ask("http://127.0.0.1:1", "X-Token: none", 1, "fuzzing", tmp_path)
