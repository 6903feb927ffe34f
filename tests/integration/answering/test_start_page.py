"""What README.md shows is what a new user gets, from the recordings that ship."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.pages import ROOT, blocks
from tests.shell import Shell


@pytest.fixture
def fresh(tmp_path: Path) -> Shell:
    """No store."""
    return Shell(tmp_path)


def _shown(start: str) -> tuple[str, str]:
    """The only command of README.md that begins so, and what is shown below it."""
    shell = [block for block in blocks(ROOT / "README.md") if block.language == "console"]
    (found,) = (one for block in shell for one in block.commands() if one[0].startswith(start))
    return found


def test_explain_prints_what_is_shown(fresh: Shell) -> None:
    command, output = _shown("gemmtune explain")
    shown = [line.strip() for line in output.splitlines()]
    printed = [line.strip() for line in fresh(*command.split()[1:]).out.splitlines()]
    for line in shown:
        head, cut, tail = line.partition("…")
        assert any(one == line or (cut and one.startswith(head) and one.endswith(tail)) for one in printed), line
    left_out = [one for one in printed if not any(one == line or ("…" in line and one.startswith(line.split("…")[0]))
                                                  for line in shown)]  # fmt: skip
    assert left_out == []


def test_an_answer_has_the_knobs_that_are_shown(fresh: Shell) -> None:
    command, output = _shown("curl")
    asked = dict(pair.split("=") for pair in command.strip("'").partition("?")[2].split("&"))
    shape = "x".join(asked.pop(extent) for extent in "mnk")
    flags = [word for name, value in asked.items() for word in (f"--{name}", value)]
    shown = re.findall(r'"(\w+)":(\d+)', output)
    knobs = json.loads(fresh("best", shape, *flags, "--json").out)["config"]["knobs"]
    assert shown
    assert [(knob, str(knobs[knob])) for knob, _ in shown] == shown


def test_a_tune_shows_the_numbers_that_an_answer_has(fresh: Shell) -> None:
    _, output = _shown("make tune")
    (time,) = re.findall(r"^ +([\d.]+ µs), ", output, re.MULTILINE)
    ratios = [line.strip() for line in output.splitlines() if line.strip().startswith("against ")]
    answer = fresh("best", "4096x4096x4096", "--dtype", "bf16").out
    assert [one for one in (time, *ratios) if one not in answer] == []
    assert len(ratios) == 2
