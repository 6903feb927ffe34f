"""Which candidates go to the finals: the fastest, or one of each structure where power decides."""

from __future__ import annotations

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


def test_the_last_of_a_budget_are_the_first_expected_of_the_structures_that_lead() -> None:
    expected = as_expected([config(tile_n, group) for tile_n in range(64, 257, 8) for group in (1, 2, 4, 8)])
    first_of_each = {structure_of(one): one for one in reversed(expected)}
    others = [one for one in expected if one not in first_of_each.values()]
    budget = Budget(candidates=6 * FIRST_OF_STRUCTURES)
    tried = others[-(budget.candidates - FIRST_OF_STRUCTURES) :]
    leading = [*dict.fromkeys(map(structure_of, reversed(tried)))][:3]

    def time_us(one: Config) -> float:
        return 100.0 + leading.index(structure_of(one)) if structure_of(one) in leading else 300.0

    found = Search(LARGE, DEVICE, expected, budget, [Trial.of(measured(one, time_us(one), LARGE)) for one in tried])
    last = found.propose()
    assert last[:3] == [first_of_each[structure] for structure in leading]
    assert len({*last, *tried}) == budget.candidates
    assert found.propose() == []
    one_earlier = Search(LARGE, DEVICE, expected, budget, found.tried[:-1])
    assert len(one_earlier.propose()) == 1
    assert one_earlier.propose()[:2] == last[:2]


def test_a_small_budget_is_searched_as_ever() -> None:
    candidates = [config(tile_n) for tile_n in range(64, 257, 8)]
    assert len(Search(LARGE, DEVICE, candidates, Budget(candidates=5)).propose()) == 4
