"""The order in which a campaign with counts is tuned: runs × least time × what the library left nearby."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from space.devices import profile_named
from space.kinds.gemm import Gemm
from space.problem import Problem
from space.rank import roofline_us
from tests.integration.attacks.test_malformed_rows import change
from tests.support import DEVICE, keep_best
from tuner.errors import StoreError
from tuner.evidence import codec
from tuner.evidence.records import Ratio
from tuner.evidence.store import Store
from tuner.fleet.campaigns import expected_gain
from tuner.fleet.campaigns.campaigns import Campaigns
from tuner.fleet.campaigns.expected_gain import USUAL_RATIO, Alike, Known, expected_gain_us
from tuner.fleet.campaigns.records import CampaignRequest
from tuner.fleet.campaigns.results import problems

extents = st.tuples(*[st.integers(1, 2**20)] * 3)
H200 = profile_named(DEVICE)


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as opened:
        yield opened


def measured(store: Store, shape: str, ratio: float, kind: str = "cuda") -> Gemm:
    problem = Gemm.parse(shape)
    best = keep_best(store, problem)
    store.set_bests([replace(best, device_kind=kind, versus_first=Ratio(ratio, ratio, ratio, True))])
    return problem


def order(store: Store, shapes: Sequence[str], counts: Sequence[int], kind: str = "cuda") -> list[str]:
    listed = tuple(map(Gemm.parse, shapes))
    campaign, _ = Campaigns(store).create(CampaignRequest("c", listed, ((DEVICE, kind),), counts=tuple(counts)))
    return [entry.problem.shape for entry in problems(store, campaign.id)]


def test_what_is_near_a_problem_that_left_more_goes_first(store: Store) -> None:
    measured(store, "64x4096x4096", 1.5)
    measured(store, "4096x64x4096", 0.9)
    shapes = ["4096x65x4096", "1x1x1", "65x4096x4096"]
    assert order(store, shapes, [9, 2, 2]) == ["65x4096x4096", "1x1x1", "4096x65x4096"]


def test_a_problem_that_has_a_best_goes_last_and_one_that_was_only_replayed_does_not(store: Store) -> None:
    measured(store, "64x4096x4096", 1.5)
    assert order(store, ["64x4096x4096", "1x1x1"], [1_000, 2]) == ["1x1x1", "64x4096x4096"]
    assert order(store, ["1x1x1", "64x4096x4096"], [2, 1_000], kind="recorded") == ["64x4096x4096", "1x1x1"]


def test_a_best_counts_however_many_are_newer(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expected_gain, "_MOST_KNOWN", 1)
    measured(store, "64x4096x4096", 1.5)
    measured(store, "128x64x64", 1.5)
    assert order(store, ["64x4096x4096", "1x1x1"], [1_000, 2]) == ["1x1x1", "64x4096x4096"]


@pytest.mark.parametrize("versus", ['{"value": "x"}', "[1]"])
def test_a_malformed_ratio_refuses_no_campaign(store: Store, versus: str) -> None:
    best = keep_best(store, Gemm.parse("64x4096x4096"))
    with store.transaction(writes=True) as session:
        change(session, best.winner.id, f"versus_first = '{versus}'")
    assert order(store, ["1x1x1", "2x4096x4096"], [2, 2]) == ["2x4096x4096", "1x1x1"]


def test_a_best_of_a_kind_that_this_version_lacks_refuses_no_campaign(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    later, reads = measured(store, "64x4096x4096", 1.5), codec.problem_of

    def problem_of(key: str) -> Problem:
        if key == later.key:
            raise StoreError("a newer version's")
        return reads(key)

    monkeypatch.setattr(codec, "problem_of", problem_of)
    assert order(store, ["1x1x1", "2x4096x4096"], [2, 2]) == ["2x4096x4096", "1x1x1"]


@given(st.lists(st.tuples(extents, st.floats(0.5, 3.0)), min_size=1, max_size=8), extents)
def test_all_at_once_are_compared_as_one_by_one(
    found: list[tuple[tuple[int, int, int], float]], asked: tuple[int, int, int]
) -> None:
    problem = Gemm(*asked)
    alike = [(Gemm(*each), ratio) for each, ratio in found]
    away, ratio = Alike(alike).nearest(problem)
    expected = min((problem.distance(other), ratio) for other, ratio in alike)
    assert (away, ratio) == (pytest.approx(expected[0], abs=2e-9), expected[1])


@pytest.mark.parametrize(("m", "ratio"), [(512, 2.0), (513, USUAL_RATIO)])
def test_a_best_says_nothing_of_problems_beyond_its_reach(m: int, ratio: float) -> None:
    near = Gemm(64, 4096, 4096)
    known = Known(alike={near.key_around_shape(): Alike([(near, 2.0)])})
    problem = Gemm(m, 4096, 4096)
    assert expected_gain_us(problem, 3, H200, known) == pytest.approx(3 * roofline_us(problem, H200) * (ratio - 1))
