"""Tables of commands stay within 100 columns where there is no terminal, and lose nothing."""

from __future__ import annotations

import pytest

from tuner.cli.output import PLAIN_COLUMNS, table


def test_a_wide_table_wraps_its_longest_column_and_keeps_short_ones_whole(capsys: pytest.CaptureFixture[str]) -> None:
    key = ",".join(f"knob_{place}={place}" for place in range(40))
    table(("M", "source", "config"), [(16, "measured (replay)", key), (4096, "predicted", key)])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= PLAIN_COLUMNS == 100
    assert any("measured (replay)" in line for line in lines)
    assert "".join("".join(lines).split()).count("knob_39=39") >= 1
