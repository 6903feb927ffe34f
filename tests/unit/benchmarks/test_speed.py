"""What the table of speed counts, and merging tables of parts: nothing is lost, other machines are refused."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from benchmarks import published, speed
from benchmarks.published import as_table
from benchmarks.speed import HEADER, Ratios, Row, merged, not_here, summary
from space.kinds.gemm import Gemm
from tests.support import FAMILY, measured
from tuner.evidence.records import Ratio
from workers.measurement import Policy


def part(folder: Path, name: str, device: str, *ratios: tuple[str, str], refused: tuple[str, ...] = ()) -> Path:
    path = folder / name
    lines = [f"| p{place} bf16 nt 1x2x3 | square | 1.0 | 2.0 | 50% | {first} (1.0–1.0) | {best} | 1700 | 0.9 | 20 | "
             "1.0 | chain | `a=1` |" for place, (first, best) in enumerate(ratios)]  # fmt: skip
    facts = as_table({"command": f"`{name}`", "data": "`l` `0`", "device": device})
    path.write_text("\n".join([facts, "", "about", "", "| class | … |", "", HEADER, *lines, *not_here(refused), ""]))
    return path


def test_the_parts_become_one_table_with_one_summary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published, "tracked", list)
    monkeypatch.setattr(published, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["speed", "--merge"])
    parts = [part(tmp_path, "one", "H200", ("1.000", "–"), ("4.000", "1.500 (1–2)"), refused=("x (why)",)),
             part(tmp_path, "two", "H200", refused=("y (too)", "z (no)"))]  # fmt: skip
    merged(parts, tmp_path / "whole.md")
    text = (tmp_path / "whole.md").read_text()
    assert [text.count(f"| p{place} bf16 ") for place in (0, 1, 2)] == [1, 1, 0]
    assert "| square | 2 | 2.000 | 1.500 | 1.000 | 1.500 |" in text
    assert text.startswith("| command | `python -m benchmarks.speed --merge` |\n| --- | --- |\n| data | `l` `0`, ")
    assert "| device | H200 |\n\nabout\n\n" in text
    assert text.endswith("\n\nNot here: x (why); y (too); z (no)\n")
    assert capsys.readouterr().out.strip() in text


def test_parts_of_different_machines_are_refused(tmp_path: Path) -> None:
    parts = [part(tmp_path, "one", "H200", ("1.0", "–")), part(tmp_path, "two", "H100", ("1.0", "–"))]
    with pytest.raises(SystemExit, match=r"one, .*two were not printed from one commit, list and device"):
        merged(parts, None)


def test_parts_of_another_library_are_refused(tmp_path: Path) -> None:
    parts = [part(tmp_path, name, "H200", ("1.0", "–")) for name in ("one", "two")]
    parts[1].write_text(parts[1].read_text().replace("about", "another cuBLASLt"))
    with pytest.raises(SystemExit, match="not printed from one commit, list and device"):
        merged(parts, None)


@pytest.mark.parametrize("policy", [Policy.SUSTAINED, Policy.CHAIN])
def test_a_line_is_read_as_it_was_counted_and_names_its_policy(policy: Policy) -> None:
    problem = Gemm.of(64, 128, 256, "fp16")
    ours = measured(FAMILY.config({}), 10.0, problem, "final", policy=policy)
    row = Row("a", "prefill", problem, ours, Ratio(1.5, 1.4, 1.6, True), None, 0.5, 9, 1.0)
    assert Ratios.read(str(row)) == Ratios.of(row) == Ratios("prefill", "fp16", 1.5, None)
    header, line = (text.split(" | ") for text in (HEADER.splitlines()[0], str(row)))
    assert line[header.index("policy")] == policy.value
    assert len(line) == len(header)


def test_classes_of_one_bound_are_one_group() -> None:
    lines = [("square", "bf16", 2.0), ("train_fwd", "fp16", 8.0), ("lm_head", "int8", 3.0), ("decode", "bf16", 5.0),
             ("moe", "bf16", 5.0), ("odd", "bf16", 9.0)]  # fmt: skip
    said = [*summary([Ratios(kind, dtype, value, value) for kind, dtype, value in lines])]
    assert "| large, 16 bits | 2 | 4.000 | 4.000 | 2.000 | 2.000 |" in said
    assert "| large, other dtypes | 1 | 3.000 | 3.000 | 3.000 | 3.000 |" in said
    assert "| few rows or columns | 2 | 5.000 | 5.000 | 5.000 | 5.000 |" in said
    assert [line for line in said if line.startswith("| odd |")] == ["| odd | 1 | 9.000 | 9.000 | 9.000 | 9.000 |"]
    assert said[-1].startswith("| all | 6 | ")


def test_a_mean_says_how_many_problems_it_is_of() -> None:
    said = [*summary([Ratios("square", "bf16", 2.0, 2.0), Ratios("square", "bf16", None, None)])]
    assert said[-1] == "| all | 1 | 2.000 | 2.000 | 2.000 | 2.000 |"


def test_a_published_table_names_the_problems_that_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (listed := tmp_path / "list.json").write_text(json.dumps([{"name": "first"}, {"name": "second"}]))
    row = Row("first", "square", Gemm.of(64, 128, 256), measured(FAMILY.config({}), 10.0), None, None, 0.5, 9, 1.0)
    made = {"first": (row, "about"), "second": "no legal config"}
    written = list[tuple[str, ...]]()
    monkeypatch.setattr(speed, "measure", lambda store, worker, one, budget: made[one["name"]])
    monkeypatch.setattr(speed, "open_worker", lambda *_: nullcontext())
    monkeypatch.setattr(speed, "publish", lambda name, out, *texts, read: written.append(texts))
    monkeypatch.setattr(sys, "argv", ["speed", str(listed)])
    speed.main()
    assert written[-1][-1].splitlines()[-2:] == ["", "Not here: second (no legal config)"]
    capsys.readouterr()
