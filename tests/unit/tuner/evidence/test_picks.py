"""Picks: deterministic, and right where the answer is known."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from space.family import family_named
from space.kinds.gemm import Gemm
from tests.support import PROVENANCE
from tuner.errors import NothingCorrect
from tuner.evidence.picks import Rivals, bests_of, pick, precedence, standings, versus
from tuner.evidence.records import StoredMeasurement
from tuner.evidence.stats import chance_within
from workers.measurement import Measurement, Outcome, Policy, Verification

FAMILY = family_named("sm90_wgmma")
PROBLEM = Gemm.parse("4096x4096x4096")
DEVICE = "NVIDIA H200"
CLEAN = Verification(elements=1, mismatches=0, worst_ratio=0.1, reference="test")


def measured(
    samples: list[float], family: str = "sm90_wgmma", policy: Policy = Policy.ROUNDS, **knobs: object
) -> Measurement:
    config = family_named(family).config(knobs)
    return Measurement(PROBLEM.key, config, "final", policy, Outcome.CORRECT, tuple(samples), verification=CLEAN)


@pytest.mark.parametrize(("ours_us", "family"), [(797.0, "cublaslt"), (793.0, "sm90_wgmma")])
def test_two_blocks_that_are_a_third_of_a_percent_faster_do_not_beat_the_library(ours_us: float, family: str) -> None:
    library = measured([800.0, 800.2], family="cublaslt", policy=Policy.SUSTAINED, rank=0)
    ours = measured([ours_us, ours_us + 0.2], policy=Policy.SUSTAINED)
    assert pick([ours, library], PROBLEM, DEVICE).config.family == family
    assert versus(library, ours, DEVICE).low == pytest.approx(800 / ours_us * (1 - 0.00588), abs=1e-4)


@pytest.mark.parametrize("first", [64, 256])
def test_under_sustained_a_tie_goes_to_the_first_in_the_finals(first: int) -> None:
    near = measured([807.0], policy=Policy.SUSTAINED, tile_n=first)
    fast = measured([800.0, 800.4], policy=Policy.SUSTAINED, tile_n=320 - first)
    slow = measured([809.0], policy=Policy.SUSTAINED, tile_n=128)
    assert pick([slow, near, fast], PROBLEM, DEVICE) is near
    assert pick([slow, fast, near], PROBLEM, DEVICE) is fast


def test_of_the_librarys_the_first_choice_wins_a_tie_of_half_a_percent() -> None:
    first, best = (measured([us, us], "cublaslt", Policy.SUSTAINED, rank=rank) for rank, us in ((0, 803.5), (1, 800.0)))
    assert pick([first, best], PROBLEM, DEVICE) is first
    assert pick([replace(first, samples_us=(804.5, 804.5)), best], PROBLEM, DEVICE) is best


def test_of_the_librarys_the_heuristics_order_breaks_a_tie_under_other_policies_too() -> None:
    first, second = (measured([8.0, 8.0], "cublaslt", Policy.CHAIN, rank=rank, algorithm=algorithm)
                     for rank, algorithm in ((0, 66), (0, 4)))  # fmt: skip
    slow = measured([8.1, 8.1], "cublaslt", Policy.CHAIN, rank=0, algorithm=1)
    assert pick([slow, first, second], PROBLEM, DEVICE) is first
    assert pick([slow, second, first], PROBLEM, DEVICE) is second


def test_ours_win_only_where_they_are_surely_faster_than_the_librarys_fastest() -> None:
    first, best = (measured([us, us], "cublaslt", Policy.SUSTAINED, rank=rank) for rank, us in ((0, 803.5), (1, 800.0)))
    between, ahead = (measured([us, us], policy=Policy.SUSTAINED, tile_n=n) for n, us in ((64, 799.0), (256, 794.0)))
    assert pick([between, first, best], PROBLEM, DEVICE) is first
    assert pick([between, ahead, first, best], PROBLEM, DEVICE) is ahead


def test_one_of_ours_that_is_not_surely_faster_than_the_librarys_wins_no_tie() -> None:
    library = measured([803.0, 803.0], "cublaslt", Policy.SUSTAINED, rank=0)
    times = (64, 799.0), (256, 797.0), (128, 796.0)
    ours = [measured([us, us], policy=Policy.SUSTAINED, tile_n=tile_n) for tile_n, us in times]
    assert pick([*ours, library], PROBLEM, DEVICE) is ours[1]


def test_who_fell_behind_in_the_first_pass_does_not_win_because_the_card_was_slower_in_the_second() -> None:
    fast = measured([800.0, 820.0], policy=Policy.SUSTAINED, tile_n=64)
    near = measured([809.0], policy=Policy.SUSTAINED, tile_n=256)
    assert pick([fast, near], PROBLEM, DEVICE) is pick([near, fast], PROBLEM, DEVICE) is fast
    assert [one.behind for one in standings([near, fast], DEVICE)] == [pytest.approx(9 / 800), 0]
    # The library's first choice takes part in every pass, however far behind.
    first = measured([900.0, 920.0], "cublaslt", Policy.SUSTAINED, rank=0)
    best = measured([809.0], "cublaslt", Policy.SUSTAINED, rank=1)
    assert pick([first, best], PROBLEM, DEVICE) is best
    # Who took part in all passes is compared over all, and with one that the card slowed as much.
    unsteady = measured([799.0, 850.0], policy=Policy.SUSTAINED, tile_n=128)
    assert pick([unsteady, fast, near], PROBLEM, DEVICE) is fast
    first, second = (measured(us, "cublaslt", Policy.SUSTAINED, rank=rank)
                     for rank, us in ((0, [900.0, 905.0]), (2, [800.0, 820.0])))  # fmt: skip
    assert pick([first, best, second], PROBLEM, DEVICE) is second


def test_a_clear_winner_wins() -> None:
    slow, fast = measured([10.0, 10.1, 9.9], tile_n=64), measured([8.0, 8.1, 7.9], tile_n=256)
    assert pick([slow, fast], PROBLEM, DEVICE) is fast
    assert chance_within([slow.samples_us, fast.samples_us], 1, 0.02) == 1.0
    assert chance_within([slow.samples_us, fast.samples_us], 0, 0.02) == 0.0


def test_a_tie_goes_to_the_same_one_whatever_the_noise() -> None:
    first, second = measured([8.0, 8.1, 7.9], tile_n=64), measured([7.97, 8.07, 7.87], tile_n=256)
    again = measured([8.0, 8.1, 7.9], tile_n=256), measured([7.97, 8.07, 7.87], tile_n=64)
    assert pick([first, second], PROBLEM, DEVICE).config == pick(again, PROBLEM, DEVICE).config


def test_inside_the_band_half_a_percent_that_is_sure_decides() -> None:
    fast, behind = measured([8.0] * 5, tile_n=64), measured([8.1] * 5, tile_n=256)
    assert pick([fast, behind], PROBLEM, DEVICE) is fast
    assert pick([behind, fast], PROBLEM, DEVICE) is fast


def test_inside_the_band_half_a_percent_that_may_be_noise_does_not() -> None:
    noisy = measured([7.0, 7.9, 8.0, 8.1, 9.0], tile_n=64), measured([9.1, 8.1, 7.1, 8.2, 8.0], tile_n=256)
    again = measured([9.1, 8.1, 7.1, 8.2, 8.0], tile_n=64), measured([7.0, 7.9, 8.0, 8.1, 9.0], tile_n=256)
    assert pick(noisy, PROBLEM, DEVICE).config == pick(again, PROBLEM, DEVICE).config


def test_outside_the_band_what_may_be_noise_ties_too() -> None:
    fast = measured([8.0] * 5, tile_n=64)
    noisy = measured([8.0 * share for share in (0.9, 0.95, 1.03, 1.04, 1.05)], tile_n=256)
    assert [round(one.behind, 3) for one in standings([fast, noisy], DEVICE)] == [0, 0.03]
    assert pick([fast, noisy], PROBLEM, DEVICE) is noisy


@pytest.mark.parametrize("ahead", [64, 256])
def test_what_is_behind_in_every_round_is_behind_however_far_the_clock_moved(ahead: int) -> None:
    clock = np.linspace(1.0, 1.2, 21)
    fast, behind = measured([*(800 * clock)], tile_n=ahead), measured([*(812 * clock)], tile_n=320 - ahead)
    assert pick([fast, behind], PROBLEM, DEVICE) is fast
    assert pick([behind, fast], PROBLEM, DEVICE) is fast


def test_the_library_is_picked_unless_our_own_kernel_is_surely_faster() -> None:
    library = measured([8.0, 8.0, 8.0], family="cublaslt", rank=0)
    for ours in ([8.0, 8.0, 8.0], [7.9, 8.1, 7.9], [8.1, 8.1, 8.1]):
        assert pick([library, measured(ours)], PROBLEM, DEVICE) is library
    assert pick([measured([7.9, 7.9, 7.9]), library], PROBLEM, DEVICE).config.family == "sm90_wgmma"


def test_a_tie_among_ours_costs_none_of_them_its_sure_win_over_the_library() -> None:
    library = measured([8.0] * 9, family="cublaslt", rank=0)
    # Within half a percent of the faster one; its estimate is shorter, and the library ties with it.
    tied, faster = measured([8.0] * 9, tile_n=256), measured([7.97] * 9, tile_n=64)
    assert pick([tied, faster], PROBLEM, DEVICE) is tied
    assert pick([tied, faster, library], PROBLEM, DEVICE) is faster


def test_where_every_candidate_of_the_library_loses_somewhere_the_first_that_is_left_wins() -> None:
    chained = [measured([us] * 9, family="cublaslt", policy=Policy.CHAIN, rank=rank)
               for rank, us in ((1, 9.1), (2, 9.0))]  # fmt: skip
    bursts = [measured([us] * 9, family="cublaslt", policy=Policy.BURST, rank=rank)
              for rank, us in ((0, 8.0), (1, 9.0), (2, 9.0))]  # fmt: skip
    rivals = Rivals(PROBLEM, DEVICE, [*chained, *bursts])
    assert rivals.winner(Policy.CHAIN) is chained[0]


@pytest.mark.parametrize("elsewhere", [Policy.SUSTAINED, Policy.CHAIN, Policy.BURST])
@pytest.mark.parametrize(
    ("ours_us", "there_us", "family"),
    [
        (7.0, [8.07] * 9, "sm90_wgmma"),
        # More than 1 %, whatever it gains.
        (7.0, [8.09] * 9, "cublaslt"),
        # It gains 1.5 %, half of which is 8.06.
        (7.88, [8.05] * 9, "sm90_wgmma"),
        (7.88, [8.065] * 9, "cublaslt"),
        # A median that is 3 % longer, and may be chance.
        (7.0, [6.0, 7.0, 7.5, 7.8, 8.24, 8.3, 8.5, 9.0, 9.5], "sm90_wgmma"),
    ],
)
def test_ours_is_served_unless_it_loses_elsewhere_more_than_its_gain_excuses(
    elsewhere: Policy, ours_us: float, there_us: list[float], family: str
) -> None:
    decides = Policy.BURST if elsewhere is Policy.CHAIN else Policy.CHAIN
    library = [measured([8.0] * 9, "cublaslt", policy, rank=0) for policy in (decides, elsewhere)]
    slow = measured([9.0] * 9, "cublaslt", elsewhere, rank=1)
    ours = measured([ours_us] * 9, policy=decides), measured(there_us, policy=elsewhere)
    assert Rivals(PROBLEM, DEVICE, [*ours, *library, slow]).winner(decides).config.family == family


@pytest.mark.parametrize(("there_us", "family"), [(8.03, "sm90_wgmma"), (8.08, "cublaslt")])
def test_two_blocks_elsewhere_are_judged_by_their_known_scatter(there_us: float, family: str) -> None:
    library = measured([8.0] * 9, "cublaslt", Policy.CHAIN), measured([8.0] * 2, "cublaslt", Policy.SUSTAINED)
    # It gains 0.5 %, half of which is 8.02.
    ours = measured([7.96] * 9, policy=Policy.CHAIN), measured([there_us] * 2, policy=Policy.SUSTAINED)
    assert Rivals(PROBLEM, DEVICE, [*ours, *library]).winner(Policy.CHAIN).config.family == family


@pytest.mark.parametrize("elsewhere", [Policy.ROUNDS, Policy.CHAIN_PDL])
def test_what_is_slower_only_where_no_user_is_is_served(elsewhere: Policy) -> None:
    library = [measured([8.0] * 9, "cublaslt", policy, rank=0) for policy in (Policy.CHAIN, elsewhere)]
    ours = measured([7.0] * 9, policy=Policy.CHAIN), measured([9.0] * 9, policy=elsewhere)
    assert Rivals(PROBLEM, DEVICE, [*ours, *library]).winner(Policy.CHAIN) is ours[0]


@pytest.mark.parametrize(
    ("bursts", "tile_n"),
    # Without bursts, and where these are within half a percent, the shorter estimate wins, of the wider tile.
    [((), 256), ((8.03, 8.0), 256), ((8.05, 8.0), 64), ((8.0, 8.05), 256)],
)
def test_ties_go_to_the_shorter_burst_then_to_the_shorter_estimate(bursts: tuple[float, ...], tile_n: int) -> None:
    rivals = [measured([8.0] * 5, policy=Policy.CHAIN, tile_n=width) for width in (64, 256)]
    taken = [measured([us] * 5, policy=Policy.BURST, tile_n=width)
             for us, width in zip(bursts, (256, 64), strict=False)]  # fmt: skip
    assert Rivals(PROBLEM, DEVICE, [*rivals, *taken]).winner(Policy.CHAIN).config["tile_n"] == tile_n


@pytest.mark.parametrize(("behind", "tile_n"), [(0.0046, 256), (0.0054, 64)])
def test_a_tie_ends_at_half_a_percent(behind: float, tile_n: int) -> None:
    fast, near = measured([8.0] * 5, tile_n=64), measured([8.0 * (1 + behind)] * 5, tile_n=256)
    assert pick([fast, near], PROBLEM, DEVICE).config["tile_n"] == tile_n


def test_half_a_percent_that_is_sure_outweighs_any_burst() -> None:
    fast, behind = (measured([us] * 5, policy=Policy.CHAIN, tile_n=width) for us, width in ((8.0, 64), (8.05, 256)))
    bursts = [measured([us] * 5, policy=Policy.BURST, tile_n=width) for us, width in ((9.0, 64), (8.0, 256))]
    assert Rivals(PROBLEM, DEVICE, [fast, behind, *bursts]).winner(Policy.CHAIN) is fast


def test_a_rival_without_a_burst_is_not_behind_in_bursts() -> None:
    rivals = [measured([8.0] * 5, policy=Policy.CHAIN, tile_n=width) for width in (64, 256)]
    burst = measured([8.0] * 5, policy=Policy.BURST, tile_n=64)
    assert Rivals(PROBLEM, DEVICE, [*rivals, burst]).winner(Policy.CHAIN).config["tile_n"] == 256


def test_ties_of_two_families_go_to_the_shorter_estimate_before_the_name() -> None:
    wgmma, mma = (measured([8.0] * 5, family) for family in ("sm90_wgmma", "mma_sync"))
    assert pick([mma, wgmma], PROBLEM, DEVICE) is wgmma


def test_ties_of_one_estimate_go_to_the_first_that_is_enumerated() -> None:
    first, second = (measured([8.0] * 5, raster_group=group) for group in (8, 16))
    assert pick([second, first], PROBLEM, DEVICE) is pick([first, second], PROBLEM, DEVICE) is first


def test_blocks_that_both_took_part_in_are_compared() -> None:
    library = measured([800.0, 900.0], "cublaslt", Policy.SUSTAINED, rank=0)
    assert versus(library, measured([800.0], policy=Policy.SUSTAINED), DEVICE).value == 1.0
    assert versus(measured([8.0, 9.0, 9.0]), measured([8.0]), DEVICE).value == 9 / 8


def stored(*taken: Measurement) -> list[StoredMeasurement]:
    return [StoredMeasurement(place, 1, DEVICE, "cuda", datetime.now(UTC), PROVENANCE, one)
            for place, one in enumerate(taken)]  # fmt: skip


def test_a_best_says_how_it_stands_to_the_first_choice_to_the_fastest_candidate_and_who_is_next() -> None:
    finals = stored(
        measured([8.0] * 9, policy=Policy.CHAIN, tile_n=64), measured([9.5] * 9, policy=Policy.CHAIN, tile_n=192),
        measured([12.0] * 9, "cublaslt", Policy.CHAIN, rank=0), measured([10.0] * 9, "cublaslt", Policy.CHAIN, rank=1),
        measured([11.0] * 9, "cublaslt", Policy.CHAIN, rank=2), measured([7.0] * 9, policy=Policy.BURST, tile_n=64),
    )  # fmt: skip
    chain, burst = bests_of(Gemm.parse("16x4096x4096"), finals, 5, {"launch": 1})
    assert (chain.winner, chain.served, burst.winner, burst.served) == (finals[0], True, finals[-1], False)
    assert chain.versus_first is not None
    assert chain.versus_best is not None
    assert (chain.versus_first.value, chain.versus_best.value) == (12 / 8, 10 / 8)
    assert chain.runner_up == finals[1].measurement.config
    assert (burst.versus_first, burst.versus_best, burst.runner_up) == (None, None, None)
    assert (chain.tried, chain.failed) == (5, {"launch": 1})


def test_the_fastest_of_the_library_is_told_over_the_passes_that_both_took_part_in() -> None:
    ours = measured([780.0, 800.0], policy=Policy.SUSTAINED)
    library = [measured(us, "cublaslt", Policy.SUSTAINED, rank=rank)
               for rank, us in enumerate(([900.0, 920.0], [805.0], [800.0, 820.0]))]  # fmt: skip
    (best,) = bests_of(PROBLEM, stored(ours, *library), 4, {})
    assert best.winner.measurement is ours
    assert best.versus_best == versus(library[2], ours, DEVICE)
    assert best.runner_up == library[2].config


def test_a_finalist_that_a_rule_forbids_by_now_wins_nothing() -> None:
    illegal = measured([7.0] * 9, tile_n=256, stages=12)
    (best,) = bests_of(PROBLEM, stored(illegal, measured([8.0] * 9)), 2, {})
    assert best.median_us == 8.0
    with pytest.raises(NothingCorrect, match="rules forbid every finalist by now"):
        bests_of(PROBLEM, stored(illegal), 1, {})


def test_power_decides_long_products_and_neighbours_short_ones() -> None:
    long, short = (precedence(Gemm.parse(shape), DEVICE) for shape in ("4096x4096x4096", "16x4096x4096"))
    assert long[:3] == (Policy.SUSTAINED, Policy.BURST, Policy.CHAIN)
    assert short[:3] == (Policy.CHAIN, Policy.SUSTAINED, Policy.BURST)
    # What no program sees, and what only a question with a context asks for, come last.
    assert long[3:] == short[3:] == (Policy.ROUNDS, Policy.CHAIN_PDL)
    assert precedence(Gemm.parse("4096x4096x4096"), "an unknown card") == short


def test_two_blocks_as_near_as_blocks_scatter_are_not_surely_apart() -> None:
    near, also, behind = (
        measured(samples, policy=Policy.SUSTAINED, tile_n=tile_n)
        for samples, tile_n in (([800.0, 800.4], 128), ([800.4, 800.8], 256), ([810.0], 64))
    )
    assert [one.surely for one in standings([near, also, behind], DEVICE)] == [False, False, True]


def test_nothing_wrong_can_win() -> None:
    wrong = Measurement("p", FAMILY.config({}), "screen", Policy.ROUNDS, Outcome.WRONG_RESULT)
    with pytest.raises(ValueError, match="no rival is correct"):
        pick([wrong], PROBLEM, DEVICE)


def test_a_measurement_cannot_be_correct_without_a_clean_verification() -> None:
    with pytest.raises(ValueError, match="can't be correct"):
        Measurement("p", FAMILY.config({}), "screen", Policy.ROUNDS, Outcome.CORRECT, (1.0,))
    dirty = Verification(elements=4, mismatches=1, worst_ratio=3.0, reference="test")
    with pytest.raises(ValueError, match="can't be correct"):
        Measurement("p", FAMILY.config({}), "screen", Policy.ROUNDS, Outcome.CORRECT, (1.0,), verification=dirty)
