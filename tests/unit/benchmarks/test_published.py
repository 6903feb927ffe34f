"""What is published says which command printed it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.published import publish


def test_paragraphs_stand_under_their_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["anything", "--shape", "two words"])
    out = tmp_path / "new" / "table.md"
    publish("search.stopping", out, "about", "| a |\n| b |")
    assert out.read_text() == "`python -m benchmarks.search.stopping --shape 'two words'`\n\nabout\n\n| a |\n| b |\n"
    publish("search.stopping", None, "nowhere")
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
