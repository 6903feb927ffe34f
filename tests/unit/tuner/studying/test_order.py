"""The order of the candidates: no duplicates, winners early, and adapted to results."""

from __future__ import annotations

import math

import numpy as np
import pytest

from space.config import Config
from space.devices import profile_named
from space.enumerate import enumerate_space
from space.family import family_named
from space.kinds.gemm import Gemm
from space.rank import rank
from tuner.prediction.expectation import Expectation, expected_of
from tuner.studying.guidance import Guidance, order_for
from tuner.studying.order import MOST_WINNERS, REORDERED, Order

H200 = profile_named("NVIDIA H200")
FAMILY = family_named("sm90_wgmma")
PROBLEM = Gemm.parse("1000x1000x1000")
RANKED = rank(enumerate_space(FAMILY, PROBLEM), H200)


def candidates(most: int) -> list[Config]:
    step = len(RANKED) // most
    return [RANKED.config(place * step) for place in range(most)]


def order_of(configs: list[Config], winners: tuple[Config, ...] = ()) -> Order:
    return order_for(Guidance(winners=winners), PROBLEM, configs, H200.name)


def test_every_candidate_is_taken_once() -> None:
    configs = candidates(60)
    order = order_of(configs)
    taken = []
    while batch := order.take(7):
        taken += batch
        order.tell(batch[0], math.inf)
        order.tell(batch[-1], batch[-1].number("tile_n"))
        # The others stay pending and are not proposed again.
    assert sorted(c.key for c in taken) == sorted(c.key for c in configs)
    assert order.take(1) == []


def test_without_results_the_expected_order_stands() -> None:
    configs = candidates(50)
    assert order_of(configs[::-1]).take(50) == configs


def test_winners_of_similar_problems_come_right_after_the_first() -> None:
    configs = candidates(300)
    stranger = FAMILY.config({"tile_m": 192, "tile_n": 8, "consumer_warpgroups": 3})
    order = order_of(configs, (configs[200], stranger, configs[100]))
    assert [order.take(1)[0], *order.take(2)] == [configs[0], configs[200], configs[100]]
    assert order.take(1) == [configs[1]]


def test_of_a_winner_that_starts_early_the_plain_twin_comes_right_after_the_first() -> None:
    configs = candidates(300)
    early = configs[200].changed({"pdl": 1})
    assert early not in configs
    assert order_of(configs, (early,)).take(3) == [configs[0], configs[200], configs[1]]


def test_of_a_winner_that_marked_its_weights_the_candidate_comes_first_that_does_as_the_others() -> None:
    configs = candidates(300)
    marked = configs[200].changed({"cache_hint": "stream_b"})
    assert order_of(configs, (marked,)).take(3) == [configs[0], configs[200], configs[1]]
    # Candidates of a recording are what was measured then.
    recorded = [config.changed({"cache_hint": "stream_b"}) for config in configs]
    assert order_of(recorded, (marked,)).take(2) == [recorded[0], recorded[200]]


def test_of_many_winners_a_few_come_first_and_none_once_others_were_measured() -> None:
    configs = candidates(300)
    winners = tuple(configs[100:110])
    assert order_of(configs, winners).take(6) == [configs[0], *winners[: MOST_WINNERS - 1], *configs[1:3]]
    resumed = order_of(configs, winners)
    for config in configs[200:210]:
        resumed.tell(config, math.inf)
    assert not {*resumed.take(4)} & {*winners}


def test_what_earlier_runs_measured_is_not_taken_again() -> None:
    configs = candidates(40)
    order = order_of(configs)
    for config in configs[:30]:
        order.tell(config, 10.0)
    order.tell(FAMILY.config({"tile_m": 192, "consumer_warpgroups": 3, "tile_n": 8}), 1.0)
    assert set(order.take(100)) == set(configs[30:])


def test_results_find_a_hidden_optimum_that_the_expectation_ranks_far_behind() -> None:
    configs = candidates(1_200)

    # A made-up cost that the estimate knows nothing of: best at one corner of the knobs.
    def cost(config: Config) -> float:
        away = abs(config.number("tile_n") - 64) / 8 + abs(config.number("stages") - 10)
        return 10.0 + away + (config["raster"] == "along_m")

    goal = sorted(map(cost, configs))[len(configs) // 150]
    assert min(map(cost, configs[:60])) > goal
    order, taken = order_of(configs), list[Config]()
    while len(taken) < 60:
        for config in order.take(4):
            taken.append(config)
            order.tell(config, cost(config))
    assert min(map(cost, taken)) <= goal


def test_of_candidates_that_look_alike_the_less_known_one_is_first() -> None:
    configs = candidates(22)
    # Twenty were measured at both ends of a feature that decides nothing; one of the others lies between them.
    features = np.array([[-1.0], [1.0]] * 10 + [[0.0], [4.0]])
    for known, other in ((20, 21), (21, 20)):
        places = [*range(20), known, other]
        order = Order([configs[place] for place in places], Expectation(features[places], np.zeros(22), 0.1))
        for config in configs[:20]:
            order.tell(config, 10.0 + (config in configs[:2]))
        assert order.take(1) == [configs[21]]


def test_failures_are_kept_away_from() -> None:
    configs = [FAMILY.config({"tile_n": n, "raster": raster}) for n in range(8, 257, 8)
               for raster in ("along_m", "along_n")]  # fmt: skip
    features = np.array([[float(c.number("tile_n")), float(c["raster"] == "along_m")] for c in configs])
    features = (features - features.mean(axis=0)) / features.std(axis=0)
    order = Order(configs, Expectation(features, np.zeros(len(configs)), 0.1))
    for config in configs[:16]:
        order.tell(config, math.inf if config["raster"] == "along_m" else 10.0)
    assert {config["raster"] for config in order.take(8)} == {"along_n"}


def test_a_long_list_is_reordered_at_its_head_and_taken_to_its_end() -> None:
    count = REORDERED + 10
    configs = [RANKED.config(place) for place in range(count)]
    rng = np.random.default_rng(0)
    order = Order(configs, Expectation(rng.standard_normal((count, 3)), np.linspace(0, 1, count), 0.1))
    for config in order.take(20):
        order.tell(config, 5.0)
    assert len({*order.take(count)}) == count - 20


def test_the_outlook_falls_as_candidates_are_tried() -> None:
    configs = [RANKED.config(place) for place in range(200)]
    estimates = dict(zip(configs, np.exp(expected_of(PROBLEM, configs, H200.name).log_us), strict=True))
    order = order_of(configs)
    assert order.outlook() is None
    gains = []
    for count in (8, 100, 92):
        for config in order.take(count):
            order.tell(config, estimates[config] * (1 + config.number("stages") / 100))
        outlook = order.outlook()
        assert outlook is not None
        assert 0 <= outlook.chance <= 1
        gains.append(outlook.gain)
    assert gains[0] > gains[1] >= gains[2] == 0.0


@pytest.mark.parametrize(("share", "chance"), [(0.99, 0.0), (0.97, 1.0)])
def test_the_chance_is_of_more_than_a_tie(share: float, chance: float) -> None:
    configs = candidates(2)
    order = Order(configs, Expectation(np.array([[-1.0], [1.0]]), np.log([10.0, 10.0 * share]), 1e-4))
    order.tell(configs[0], 10.0)
    outlook = order.outlook()
    assert outlook is not None
    assert outlook.chance == chance
    assert outlook.gain == pytest.approx(1 - share, rel=0.05)
