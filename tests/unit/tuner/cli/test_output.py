"""Output of commands: tables within 100 columns where there is no terminal, which lose nothing, and counts."""

from __future__ import annotations

import pytest

from tuner.cli.output import PLAIN_COLUMNS, console, notes, table
from tuner.cli.replays import print_sentences
from tuner.counts import counted


def test_a_wide_table_wraps_its_longest_column_and_keeps_short_ones_whole(capsys: pytest.CaptureFixture[str]) -> None:
    key = ",".join(f"knob_{place}={place}" for place in range(40))
    table(("M", "source", "config"), [(16, "measured (replay)", key), (4096, "predicted", key)])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= PLAIN_COLUMNS == 100
    assert any("measured (replay)" in line for line in lines)
    assert "".join("".join(lines).split()).count("knob_39=39") >= 1


def test_counts_are_in_the_right_number() -> None:
    assert [counted(count, "problem") for count in (0, 1, 2_000)] == ["0 problems", "1 problem", "2,000 problems"]


def test_what_others_wrote_gives_a_terminal_no_orders(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "a\x1b]0;title\x07\x1b[2J\r\x9b31m\u202eb µs –\u202f\n"
    table(("reason",), [(hostile,)])
    console.print(hostile)
    notes.print(f"worker {hostile}")
    out, err = capsys.readouterr()
    for shown in (out, err):
        assert not set(shown) & set("\x1b\x07\r\x9b\u202e")
        assert "\\x1b]0;title\\x07\\x1b[2J\\r\\x9b31m\\u202eb µs –" in shown


def test_of_many_moments_the_first_are_told_and_a_command_that_has_the_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_sentences(f"on day {day}" for day in range(5))
    assert capsys.readouterr().out.splitlines() == [
        "  on day 0", "  on day 1", "  on day 2", "  and 2 more moments; `gemmtune best` tells each problem's"
    ]  # fmt: skip
