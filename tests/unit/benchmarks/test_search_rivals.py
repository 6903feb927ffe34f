"""The rivals of the search benchmark match their descriptions."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.search.deepgemm import choices
from benchmarks.search.nearest import nearest_order
from benchmarks.search.replay import Replay, class_of, superseded
from benchmarks.search.report import Curves, table
from benchmarks.search.setting import without_class, without_problem
from space.kinds.gemm import Gemm
from tests.support import DEVICE, FAMILY

# What the rule of mid-2026 picks: tile, cluster and stages.
PICKS = [
    ("512x512x512", "bf16", (64, 32, 1, 1, 16)),
    ("1024x1024x1024", "bf16", (64, 128, 1, 1, 8)),
    ("2048x2048x2048", "bf16", (128, 256, 1, 1, 3)),
    ("3072x3072x3072", "bf16", (128, 192, 2, 1, 4)),
    ("4096x4096x4096", "bf16", (256, 128, 1, 2, 3)),
    ("8192x8192x8192", "bf16", (256, 128, 1, 2, 3)),
    ("4096x2112x7168", "bf16", (128, 176, 2, 1, 4)),
    ("4096x576x7168", "fp8_e4m3", (128, 144, 1, 1, 5)),
    ("4096x4096x4096", "tf32", (128, 192, 2, 1, 3)),
    ("16x28672x4096", "bf16", (16, 112, 2, 1, 13)),
    ("128x2112x7168", "bf16", (64, 32, 1, 1, 16)),
]


@pytest.mark.parametrize(("shape", "dtype", "pick"), PICKS)
def test_deepgemms_rule_picks_what_is_published(shape: str, dtype: str, pick: tuple[int, ...]) -> None:
    first = choices(Gemm.parse(shape, dtype), 132)[0]
    assert (first.block_m, first.block_n, first.cluster_m, first.cluster_n, first.stages) == pick


def test_a_recording_of_early_starts_only_teaches_where_another_has_the_problem() -> None:
    def recorded(shape: str, *pdl: int) -> Replay:
        configs = tuple(FAMILY.config({"tile_n": 64 + 8 * place, "pdl": early}) for place, early in enumerate(pdl))
        return Replay(Gemm.parse(shape), DEVICE, configs, np.ones(len(pdl)))

    early, later = recorded("512x512x512", 1, 1, 0), recorded("512x512x512", 1, 0, 0)
    alone = recorded("1024x1024x1024", 1, 1)
    assert [superseded(each, [early, later, alone]) for each in (early, later, alone)] == [True, False, False]


def replay(shape: str, tiles: list[int], times: list[float]) -> Replay:
    configs = tuple(FAMILY.config({"tile_n": tile}) for tile in tiles)
    return Replay(Gemm.parse(shape), DEVICE, configs, np.array(times))


def test_a_wish_becomes_the_nearest_recorded_candidate_and_none_is_taken_twice() -> None:
    recorded = replay("512x512x512", [64, 128, 256], [3.0, 2.0, 1.0])
    wishes = [{"tile_n": 120}, {"tile_n": 120}, {"tile_n": 120, "unknown": 1}, {"tile_n": 8}]
    assert nearest_order(recorded, FAMILY, wishes, most=9) == [1, 0, 2]


def test_shares_are_of_the_fastest_and_failures_reach_nothing() -> None:
    recorded = replay("512x512x512", [64, 128, 256], [4.0, float("inf"), 2.0])
    assert recorded.shares([1, 0, 2], 5).tolist() == [0.0, 0.5, 1.0, 1.0, 1.0]
    assert len(recorded.group.configs) == 2


def test_what_is_left_out_is_left_out_whole() -> None:
    shapes = ["4096x4096x4096", "8192x8192x8192", "128x28672x4096", "4096x4096x4096"]
    replays = [replay(shape, [64], [1.0]) for shape in shapes]
    assert [class_of(one.problem) for one in replays] == ["square", "square", "decode", "square"]
    assert without_problem(replays[0], replays) == (1, 2)
    assert without_class(replays[0], replays) == (2,)


def test_the_table_counts_runs_that_never_came_near_as_their_length() -> None:
    curves = Curves(np.array([[0.9, 0.99, 1.0, 1.0], [0.8, 0.9, 0.95, 0.97]]))
    assert curves.to_within.tolist() == [2.0, 4.0]
    assert curves.never_within == 0.5
    line = table({"ours": curves}, {"ours": 2}).splitlines()[-1]
    assert line == "| ours | 2 | 0.849 / 0.805 / 0.800 | 0.985 / 0.972 / 0.970 | 3.0 | 3 | 50% |"
