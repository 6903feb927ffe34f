"""What `benchmarks.elsewhere` reads of stores, and what it says of times."""

from __future__ import annotations

import pytest

from benchmarks.elsewhere import Pair, lines, pairs, summary
from benchmarks.published import ROOT
from space.kinds.gemm import Gemm
from space.registry import family_named, is_own

STORES = ROOT / "benchmarks" / "stores" / "h200_rest"


def test_the_shortest_products_come_first_each_with_ours_and_the_librarys() -> None:
    found = pairs([STORES], "NVIDIA H200", 3)
    assert [pair.problem.shape for pair in found][:2] == ["512x2048x768", "16x2112x7168"]
    assert [[is_own(config) for config in pair.configs] for pair in found] == [[True, False]] * 3
    assert pairs([STORES], "NVIDIA H100 PCIe", 3) == []


@pytest.mark.parametrize(("split_k", "whose"), [(1, "cuBLASLt's without"), (4, "cuBLASLt's with split-K")])
def test_what_touching_adds_is_told_apart_by_the_kernels_of_a_product(split_k: int, whose: str) -> None:
    own = family_named("sm90_wgmma").config({})
    library = family_named("cublaslt").config({"split_k": split_k})
    pair = Pair(Gemm.of(64, 2112, 7168), (own, library))
    phases = [[6.5, 9.2], [6.85, 10.2], [6.5, 9.2]]
    assert [line.rsplit("|", 2)[1].strip() for line in lines(pair, phases)] == ["+0.35", "+1.00"]
    told = summary([pair], [[each] for each in phases])
    assert f"{whose} +1.00 µs" in told
    assert "ours +0.35 µs" in told
