"""Merging tables of parts: nothing is lost, and parts of another machine are refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks import published
from benchmarks.published import as_table
from benchmarks.speed import HEADER, merged


def part(folder: Path, name: str, device: str, *ratios: tuple[str, str]) -> Path:
    path = folder / name
    lines = [f"| p{place} bf16 nt 1x2x3 | square | 1.0 | 2.0 | 50% | {first} (1.0–1.0) | {best} | 1700 | 0.9 | 20 | "
             "1.0 | `a=1` |" for place, (first, best) in enumerate(ratios)]  # fmt: skip
    facts = as_table({"command": f"`{name}`", "data": "`l` `0`", "device": device})
    path.write_text("\n".join([facts, "", "about", "", "| class | … |", "", HEADER, *lines, ""]))
    return path


def test_the_parts_become_one_table_with_one_summary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published, "tracked", list)
    monkeypatch.setattr(published, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["speed", "--merge"])
    parts = [part(tmp_path, "one", "H200", ("1.000", "–"), ("4.000", "1.500 (1–2)")), part(tmp_path, "two", "H200")]
    merged(parts, tmp_path / "whole.md")
    text = (tmp_path / "whole.md").read_text()
    assert [text.count(f"| p{place} bf16 ") for place in (0, 1, 2)] == [1, 1, 0]
    assert "| square | 2 | 2.000 | 1.500 | 1.000 | 1.500 |" in text
    assert text.startswith("| command | `python -m benchmarks.speed --merge` |\n| --- | --- |\n| data | `l` `0`, ")
    assert "| device | H200 |\n\nabout\n\n" in text
    assert capsys.readouterr().out.strip() in text


def test_parts_of_different_machines_are_refused(tmp_path: Path) -> None:
    parts = [part(tmp_path, "one", "H200", ("1.0", "–")), part(tmp_path, "two", "H100", ("1.0", "–"))]
    with pytest.raises(SystemExit, match=r"one, .*two were not printed from one commit, list and device"):
        merged(parts, None)
