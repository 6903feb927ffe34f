"""Parts of `benchmarks.deployed`: runs on other days go on with them, and become one table."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

from benchmarks import published  # noqa: E402
from benchmarks.deployed_table import Part, Row, merged  # noqa: E402
from benchmarks.deployed_timing import REGIMES  # noqa: E402
from benchmarks.published import Unpublishable  # noqa: E402

FACTS = {"command": "`one`", "commit": "`1`", "data": "`l` `0`", "driver": "8", "program": "`p`", "machine": "m"}
LATER = {**FACTS, "commit": "`2`", "machine": "n"}

LISTED = ["first", "second"]


def row(name: str) -> Row:
    us = {arm: dict.fromkeys(REGIMES, time) for arm, time in (("torch", 2.0), ("served", 1.0))}
    return Row(name, "square", "64x64x64", "bf16", 1.0, "gemv, chain", us, {"torch": None, "served": None}, 1.0)


@pytest.fixture(autouse=True)
def anything_is_tracked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(published, "tracked", list)
    monkeypatch.setattr(published, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["deployed", "--merge"])


def kept(part: Part, path: Path) -> Path:
    path.write_text(json.dumps(asdict(part)))
    return path


def test_a_part_goes_on_at_another_commit_of_the_same_program(tmp_path: Path) -> None:
    part, path, out = Part(), tmp_path / "part.json", tmp_path / "table.md"
    part.begin("`one`", FACTS)
    part.rows.append(row("first"))
    again = Part.read(kept(part, path))
    again.begin("`one`", LATER)
    other = Part({"`two`": {**LATER, "command": "`two`"}}, [row("second")], {"third": "torch refuses it"})
    files = [kept(again, path), kept(other, tmp_path / "other.json")]
    assert merged(files, [*LISTED, "third", "fourth"], out) == 0
    text = out.read_text()
    assert "2 of 4 problems of the list. Not here: third (torch refuses it), fourth (not measured)." in text
    assert text.startswith("| command | `python -m benchmarks.deployed --merge` |\n| --- | --- |\n")
    assert "| commit | `1`, `2` |" in text
    assert re.search(r"\| data \| `l` `0`, `part.json` `\w+`, `other.json` `\w+` \|", text)
    assert all(f"| {name} bf16 64x64x64 |" in text for name in ("first", "second"))


@pytest.mark.parametrize("other", [{"program": "`q`"}, {"driver": "9"}])
def test_a_part_does_not_go_on_with_another_program_or_driver(other: dict[str, str]) -> None:
    part = Part({"`one`": FACTS}, [row("first")])
    with pytest.raises(Unpublishable, match=f"rows of another {next(iter(other))}: a table has one"):
        part.begin("`one`", FACTS | other)
    assert part.commands == {"`one`": FACTS}
    # Without rows there is nothing to join.
    empty = Part({"`one`": FACTS}, [])
    empty.begin("`one`", FACTS | other)
    assert empty.commands == {"`one`": FACTS | other}


def test_a_part_that_only_refused_begins_anew_with_another_program() -> None:
    part = Part({"`one`": FACTS}, [], {"first": "no"})
    part.begin("`two`", FACTS | {"program": "`q`"})
    assert (part.commands, part.refused) == ({"`two`": FACTS | {"program": "`q`"}}, {})


def test_what_can_not_be_joined_is_not_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, first = tmp_path / "table.md", kept(Part({"`one`": FACTS}, [row("first")]), tmp_path / "first.json")
    other = kept(Part({"`two`": {**FACTS, "program": "`q`"}}, [row("second")]), tmp_path / "other.json")
    assert merged([first, other], LISTED, out) == 1
    assert "not measured by one program" in capsys.readouterr().out
    assert merged([first, first], LISTED, out) == 1
    assert "first is in more than one part" in capsys.readouterr().out
    assert not out.exists()
