"""The table of `benchmarks.deployed`: what its lines count, and parts, which runs on other days go on with and join."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from benchmarks import published
from benchmarks.deployed_table import REGIMES, Part, Row, groups, mean, merged, summary, table
from benchmarks.model import parts
from benchmarks.published import Unpublishable

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


def timed(name: str, group: str, dtype: str, problem: str, torchs: float, **arms: dict[str, float]) -> Row:
    """A row with torch's time in every regime, and each arm's own."""
    us = {"torch": dict.fromkeys(REGIMES, torchs), **arms}
    joules = {arm: times["alone"] * 1e-6 for arm, times in us.items()}
    return Row(name, group, problem, dtype, 1.0, "gemv, chain", us, joules, 1.5, 60.0)


def regimes(turns: float, alone: float, burst: float, chain: float) -> dict[str, float]:
    return dict(zip(REGIMES, (turns, alone, burst, chain), strict=True))


def test_means_are_geometric_and_the_worst_ratio_is_of_what_a_program_sees() -> None:
    rows = [
        timed("a", "decode", "bf16", "16x64x64", 8.0, served=regimes(16, 2, 4, 8), own=regimes(16, 4, 4, 8),
              library=regimes(8, 8, 8, 8)),
        timed("b", "decode", "bf16", "16x64x64", 8.0, served=regimes(16, 8, 4, 10), library=regimes(8, 8, 8, 8)),
        timed("c", "odd", "bf16", "15x64x64", 8.0, served=regimes(8, 1, 1, 1), own=regimes(8, 1, 1, 1),
              library=regimes(8, 8, 8, 8)),
    ]  # fmt: skip
    said = summary(rows)
    # In turns, at a clock that no program has, both are slower still.
    assert "| 16-bit but odd | 2 | served | 0.500 | 2.000 | 2.000 | 0.894 | 0.800 | 0.500 |" in said
    assert "| 16-bit but odd | 1 | own | 0.500 | 2.000 | 2.000 | 1.000 | 1.000 | 0.500 |" in said
    assert "alone, all but odd: 2.000 (1)." in said
    assert "3 problems were tuned from scratch in 3.0 minutes of one GPU." in said
    assert "| a bf16 16x64x64 | decode | gemv, chain | 8.00 | own | 0.500 | 2.000 | 2.000 | 1.000 | 0.500 | 1.50 |" in (
        table(rows)
    )
    assert mean([]) != mean([])


def test_a_line_counts_the_problems_that_it_names() -> None:
    def one(name: str, group: str, dtype: str = "bf16", problem: str = "4096x4096x4096", torchs: float = 90.0) -> Row:
        return timed(name, group, dtype, problem, torchs, served=dict.fromkeys(REGIMES, 1.0))

    rows = [
        one("square", "square"), one("small", "square", problem="1024x4096x4096"), one("odd", "odd"),
        one("prefill", "prefill", "fp16", "2048x2048x2048"), one("narrow", "prefill", problem="4096x1280x8192"),
        one("train", "train_wgrad"), one("fp8", "square", "fp8_e4m3"), one("long", "decode", "fp8_e5m2", torchs=40.0),
        one("short", "prefill", "fp8_e4m3", torchs=39.9), one("moe", "moe", "int8"), one("tf32", "square", "tf32"),
    ]  # fmt: skip
    counted = {line: [row.name for row in found] for line, found in groups(rows).items()}
    assert counted["16-bit but odd"] == ["square", "small", "prefill", "narrow", "train"]
    assert counted["16-bit square, prefill, training, M, N, K >= 2048"] == ["square", "prefill", "train"]
    assert counted["decode and moe"] == ["long", "moe"]
    assert counted["fp8 of 40 µs and more"] == ["fp8", "long"]
    assert counted["all but odd"] == [row.name for row in rows if row.name != "odd"]
    assert counted["odd"] == counted["class odd"] == ["odd"]
    assert counted["class prefill"] == ["prefill", "narrow", "short"]


def kept(part: Part, path: Path) -> Path:
    path.write_text(json.dumps(asdict(part)))
    return path


def test_a_bar_in_a_name_ends_no_cell() -> None:
    lines = table([replace(row("a|b"), group="c|d")]).splitlines()
    shown = [line for line in lines if line.startswith(("| problem |", r"| a\|b "))]
    assert len(shown) == 2
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in shown}) == 1


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


def test_parts_of_two_programs_are_joined_where_that_is_asked_for_and_the_table_says_so(
    tmp_path: Path
) -> None:
    out, first = tmp_path / "table.md", kept(Part({"`one`": FACTS}, [row("first")]), tmp_path / "first.json")
    other = kept(Part({"`two`": {**FACTS, "program": "`q`"}}, [row("second")]), tmp_path / "other.json")
    assert merged([first, other], LISTED, out, programs=True) == 0
    assert "\nRows by program: 1 of `p`, 1 of `q`." in out.read_text()
    assert "| program | `p`, `q` |" in out.read_text()
    newer = FACTS | {"program": "`r`", "model": "newer"}
    again = kept(Part({"`three`": newer}, [row("first")]), tmp_path / "again.json")
    assert merged([first, other, again], LISTED, out, programs=True) == 0
    assert "\nRows by program: 0 of `p`, 1 of `q`, 1 of `r`." in out.read_text()
    kernels = kept(Part({"`two`": {**FACTS, "kernels": "other"}}, [row("second")]), tmp_path / "kernels.json")
    assert merged([first, kernels], LISTED, out, programs=True) == 1


def test_parts_of_two_lists_are_joined_where_that_is_asked_for(tmp_path: Path) -> None:
    out, first = tmp_path / "table.md", kept(Part({"`one`": FACTS}, [row("first")]), tmp_path / "first.json")
    other = kept(Part({"`two`": {**FACTS, "data": "`m` `1`"}}, [row("second")]), tmp_path / "other.json")
    assert merged([first, other], LISTED, out) == 1
    assert merged([first, other], LISTED, out, programs=True) == 0
    assert "| data | `l` `0`, `m` `1`, " in out.read_text()


def test_a_models_part_holds_blocks_of_one_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part = parts.Part({"`one`": FACTS}, {"llama": "## llama"})
    with pytest.raises(Unpublishable, match="rows of another program"):
        part.begin("`one`", FACTS | {"program": "`q`"})
    part.begin("`one`", LATER)
    assert part.commands["`one`"]["commit"] == "`1`, `2`"
    empty = parts.Part({"`one`": FACTS}, {})
    empty.begin("`one`", FACTS | {"program": "`q`"})
    assert empty.commands == {"`one`": FACTS | {"program": "`q`"}}
    (path := tmp_path / "part.json").write_text(part.text())
    assert parts.merged([path, path], tmp_path / "table.md") == 1
    assert "a block is in more than one part" in capsys.readouterr().out
    assert not (tmp_path / "table.md").exists()
