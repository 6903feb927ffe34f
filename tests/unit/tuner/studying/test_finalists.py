"""Which candidates go to the finals: the fastest, or one of each structure where power decides."""

from __future__ import annotations

import pytest

from space.config import Config
from space.devices import profile_named
from space.kinds.gemm import Gemm
from space.rank import power_decides
from space.structures import structure_of
from tests.support import DEVICE, FAMILY, PROBLEM, measured
from tuner.studying.finalists import ALIKE, finalist_count, one_of_each_structure
from tuner.studying.guidance import Guidance, order_for
from tuner.studying.records import FINALISTS, MOST_WITH_STRUCTURES, Budget, Trial
from tuner.studying.screening import FIRST_OF_STRUCTURES, Search
from workers.measurement import Outcome

LARGE = Gemm.parse("4096x4096x4096")


def config(tile_n: int, group: int = 1) -> Config:
    return FAMILY.config({"tile_n": tile_n, "raster_group": group, "stages": 3})


def trial(tile_n: int, group: int, time_us: float) -> Trial:
    return Trial.of(measured(config(tile_n, group), time_us, LARGE))


def chosen(*ahead: tuple[int, int, float]) -> list[tuple[int, int]]:
    """Tile and raster group of those that go to the finals, where smaller groups are expected to be faster."""
    trials = [trial(*each) for each in ahead]
    found = one_of_each_structure(trials, lambda config: config.number("raster_group"))
    return [(entry.config.number("tile_n"), entry.config.number("raster_group")) for entry in found]


def test_noise_brings_more_candidates_into_the_finals() -> None:
    clear = [(10.0 + place, 0.001) for place in range(20)]
    assert finalist_count(clear, 4, 8) == 4
    assert finalist_count([(time, 0.25) for time, _ in clear], 4, 8) == 4
    assert finalist_count([(10 + place / 100, 0.05) for place in range(20)], 4, 8) == 8
    assert finalist_count(clear[:2], 4, 8) == 2
    assert finalist_count([], 4, 8) == 0


def test_of_configs_of_one_structure_that_tie_the_first_expected_goes_to_the_finals() -> None:
    assert power_decides(LARGE, profile_named(DEVICE))
    assert not power_decides(PROBLEM, profile_named(DEVICE))
    ties = 100 * (1 + ALIKE)
    assert chosen((128, 8, 100.0), (128, 4, 101.0), (128, 2, ties), (128, 1, ties + 0.1)) == [(128, 2)]
    # Another structure ties with nobody.
    assert chosen((128, 8, 100.0), (64, 1, 100.1), (128, 2, 101.5)) == [(64, 1), (128, 2)]


def test_far_structures_go_to_the_finals_only_while_there_are_few() -> None:
    near, far = [(tile_n, 1, 100.0 + tile_n / 100) for tile_n in range(64, 129, 8)], [(32, 1, 150.0), (16, 1, 160.0)]
    assert [tile_n for tile_n, _ in chosen(*near, *far)] == [*range(64, 129, 8)]
    assert chosen(*near[:2], *far) == [(64, 1), (72, 1), (32, 1), (16, 1)]
    # Near is the structure whose best is near, also where it sends a slower one.
    assert chosen(*near[:4], (32, 8, 104.5), (32, 1, 106.0))[-1] == (32, 1)
    many = [(tile_n, 1, 100.0 + tile_n / 100) for tile_n in range(64, 257, 8)]
    assert len(many) > len(chosen(*many)) == MOST_WITH_STRUCTURES
    assert len(chosen(*many[:1], *((tile_n, 1, 150.0) for tile_n in range(128, 257, 8)))) == FINALISTS


def as_expected(candidates: list[Config]) -> list[Config]:
    return sorted(candidates, key=order_for(Guidance(), LARGE, candidates, DEVICE).place)


def test_where_power_decides_finalists_come_as_expected_and_twins_are_of_the_fastest() -> None:
    expected = as_expected([config(tile_n, group) for tile_n in (256, 192, 128) for group in (1, 2, 4)])
    last_of_each = {structure_of(one): one for one in expected}
    slowest_first = sorted(last_of_each.values(), key=expected.index, reverse=True)
    tried = [Trial.of(measured(one, 100.0 + place, LARGE)) for place, one in enumerate(slowest_first)]
    found = Search(LARGE, DEVICE, expected, Budget(), tried).finalists()
    assert [one for one in found if not one["pdl"]] == slowest_first[::-1]
    assert [one["tile_n"] for one in found if one["pdl"]] == [one["tile_n"] for one in slowest_first[:2]]


@pytest.mark.parametrize("least", [4, 2, 1])
def test_a_retry_with_fewer_finalists_chooses_among_the_same(least: int) -> None:
    expected = as_expected([config(tile_n, group) for tile_n in (256, 128) for group in (1, 2, 4)])
    of_each = {one["tile_n"]: [each for each in expected if each["tile_n"] == one["tile_n"]] for one in expected}
    sent = set()
    for lucky in range(3):
        # One of the three of each tile is half a percent ahead, by chance.
        times = {one: 100.0 + (tile_n == 128) - (place == lucky) / 2 for tile_n, group in of_each.items()
                 for place, one in enumerate(group)}  # fmt: skip
        tried = [Trial.of(measured(one, time, LARGE)) for one, time in times.items()]
        sent.add(tuple(Search(LARGE, DEVICE, expected, Budget(), tried).finalists(least)[:least]))
    assert len(sent) == 1
    assert next(iter(sent))[0] == of_each[256][0]


def test_others_go_to_the_finals_where_they_are_right_and_come_last() -> None:
    expected = as_expected([config(tile_n, group) for tile_n in (256, 128) for group in (1, 2, 4)])
    tried = [Trial.of(measured(one, 100.0, LARGE)) for one in expected[:-1]]
    last, wrong = expected[-2], expected[-1]
    tried.append(Trial.of(measured(wrong, problem=LARGE, outcome=Outcome.WRONG_RESULT)))
    found = Search(LARGE, DEVICE, expected, Budget(), tried).finalists(also=[last, wrong, expected[0], last])
    assert [one for one in found if not one["pdl"]] == [expected[0], found[1], last]
    assert found[1]["tile_n"] != expected[0]["tile_n"]


def test_a_config_that_is_no_candidate_by_now_is_expected_last() -> None:
    former, *candidates = as_expected([config(128, group) for group in (1, 2, 4, 8)])
    tried = [Trial.of(measured(one, 100.0, LARGE)) for one in (former, *candidates)]
    assert Search(LARGE, DEVICE, candidates, Budget(), tried).finalists()[0] == candidates[0]


def test_the_last_of_a_budget_are_the_first_expected_of_the_structures_that_lead() -> None:
    expected = as_expected([config(tile_n, group) for tile_n in range(64, 257, 8) for group in (1, 2, 4, 8)])
    first_of_each = {structure_of(one): one for one in reversed(expected)}
    others = [one for one in expected if one not in first_of_each.values()]
    budget = Budget(candidates=6 * FIRST_OF_STRUCTURES)
    tried = others[-(budget.candidates - FIRST_OF_STRUCTURES) :]
    leading = [*dict.fromkeys(map(structure_of, reversed(tried)))][:3]

    def time_us(one: Config) -> float:
        return 100.0 + leading.index(structure_of(one)) if structure_of(one) in leading else 106.0

    trials = [Trial.of(measured(one, time_us(one), LARGE)) for one in tried]
    found = Search(LARGE, DEVICE, expected[::-1], budget, trials)
    last = found.propose()
    assert last[:3] == [first_of_each[structure] for structure in leading]
    # The structures that are 6 % behind are no finalists: theirs are tried in their turn.
    plain = order_for(Guidance(), LARGE, expected[::-1], DEVICE)
    for entry in trials:
        plain.tell(entry.config, entry.median_us)
    assert last[3:] == [one for one in plain.take(budget.candidates) if one not in last[:3]][:5]
    assert len({*last, *tried}) == budget.candidates
    assert found.propose() == []


def test_a_sixth_of_a_small_budget_is_kept_for_them() -> None:
    candidates = [config(tile_n, group) for tile_n in range(64, 257, 8) for group in (1, 2)]
    found, batches = Search(LARGE, DEVICE, candidates, Budget(candidates=24)), []
    while batch := found.propose():
        batches.append(len(batch))
        for one in batch:
            found.tell(measured(one, 100.0, LARGE))
    assert batches == [4, 4, 4, 4, 4, 4]


def test_a_small_budget_is_searched_as_ever() -> None:
    candidates = [config(tile_n) for tile_n in range(64, 257, 8)]
    assert len(Search(LARGE, DEVICE, candidates, Budget(candidates=5)).propose()) == 4
