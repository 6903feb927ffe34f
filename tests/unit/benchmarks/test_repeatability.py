"""What the benchmarks of repeatability conclude from times and winners."""

from __future__ import annotations

from benchmarks.repeatability import table
from benchmarks.tuned_twice import Pair, summary
from space.kinds.gemm import Gemm
from tests.support import FAMILY
from tuner.evidence.records import Ratio

PROBLEM = Gemm.parse("4096x4096x4096")


def test_a_config_keeps_the_promise_where_all_its_times_lie_together() -> None:
    runs = [{"a": 100.0, "b": 100.0, "gone": 1.0}, {"a": 101.0, "b": 102.0}, {"a": 100.5, "b": 101.0}]
    lines = list(table(PROBLEM, runs))
    assert [line for line in lines if line.startswith("| `")] == [
        "| `a` | 100.00, 101.00, 100.50 | 1.00% |", "| `b` | 100.00, 102.00, 101.00 | 1.98% |"
    ]  # fmt: skip
    told = "1 of 2 configs repeat within 1.5%; the median config within 1.49%, the worst within 1.98%"
    assert lines[-1].startswith("\n" + told)


def test_winners_that_differ_agree_only_if_they_are_as_fast() -> None:
    one, other = FAMILY.config({"tile_n": 128}), FAMILY.config({"tile_n": 256})
    pairs = [
        Pair(PROBLEM, one, one, None),
        Pair(PROBLEM, one, other, Ratio(1.01, 1.009, 1.011, True)),
        Pair(PROBLEM, one, other, Ratio(1.05, 0.99, 1.11, True)),
        Pair(PROBLEM, one, other, Ratio(1.05, 1.04, 1.06, True)),
    ]
    assert [pair.tied for pair in pairs] == [True, True, True, False]
    assert "| yes | – | yes |" in pairs[0].line
    assert "| no | 1.0500 (1.0400 to 1.0600) | NO |" in pairs[3].line
    assert summary(pairs).startswith("1 of 4 pairs of tunes named the same winner, 3 the same one or one within")
