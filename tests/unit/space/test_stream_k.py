"""Stream-K's last wave: owners, peers, their shares, and the estimate of its time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from space.devices import profile_named
from space.enumerate import enumerate_space
from space.explain import is_legal
from space.families.sm90_wgmma.stream_k import LEAVING_STAGES, MAX_PEERS, sharing
from space.family import family_named
from space.kinds.gemm import Gemm

H200 = profile_named("NVIDIA H200")

FAMILY = family_named("sm90_wgmma")
PAIR = {"schedule": "pingpong", "tile_n": 128, "stages": 7, "epilogue": "direct", "cluster_m": 2}

counts = st.integers(1, 5_000)


@given(counts, st.integers(1, 160), st.integers(1, 600))
def test_owners_and_helpers_have_as_much_to_do(tiles: int, clusters: int, k_stages: int) -> None:
    owners, peers, kept = (int(each) for each in sharing(*map(np.asarray, (tiles, clusters, k_stages))))
    if tiles < clusters or tiles % clusters == 0:
        assert owners == 0
    if owners == 0:
        assert (peers, kept) == (0, k_stages)
        return
    assert owners == tiles % clusters
    assert 1 <= peers <= min(clusters - owners, MAX_PEERS * owners)
    assert 1 <= kept < k_stages
    # A helper's share plus the store of its sums takes as long as an owner's share, within a stage.
    share = owners * (k_stages - kept + LEAVING_STAGES) / peers
    assert share <= kept
    assert kept - 1 < owners * (k_stages + LEAVING_STAGES) / (owners + peers)


def test_many_are_answered_like_one() -> None:
    tiles, clusters, k_stages = np.array([100, 264, 1024, 7]), np.array([132, 132, 132, 2]), np.array([64, 64, 64, 9])
    together = np.stack(sharing(tiles, clusters, k_stages), axis=1)
    alone = [sharing(*one) for one in zip(tiles, clusters, k_stages, strict=True)]
    assert together.tolist() == np.array(alone).tolist()


@pytest.mark.parametrize(
    ("shape", "dtype", "pays"),
    [("8192x2304x16384", "bf16", True), ("2048x4096x14336", "bf16", True), ("4096x4096x2048", "bf16", False)],
)
def test_the_estimate_says_where_it_pays(shape: str, dtype: str, pays: bool) -> None:
    problem = Gemm.parse(shape, dtype)
    both = [FAMILY.config(PAIR | {"stream_k": shared}) for shared in (0, 1)]
    assert all(is_legal(FAMILY, problem, config) for config in both)
    alone, shared = FAMILY.estimate_us(FAMILY.columns(problem, both), H200)
    assert (shared < alone) == pays


def test_it_is_tried_only_by_who_asks_for_it() -> None:
    problem = Gemm.parse("8192x2304x16384")
    assert not enumerate_space(FAMILY, problem).columns["stream_k"].any()
    assert enumerate_space(FAMILY, problem, without=("worth.stream_k",)).columns["stream_k"].any()
