"""Finals: who takes part in what, and what becomes of a rival that is wrong while it is timed."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import pytest

from space.family import family_named
from tests.fake_bench import CLOCKS, REFUSED, REFUSED_LATER, WRONG, Bench, Outputs, Timed, own, ran, telling
from tests.support import FAMILY
from workers.cuda import driver, finals, regimes
from workers.cuda.outputs import Difference
from workers.measurement import Measurement, Outcome, Policy


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regimes, "BURST_REST_SECONDS", 0.0)


@dataclass
class Later(Outputs):
    """Those of a place differ the `asks`th time: asked behind each burst, the turns of a policy, and each block."""

    asks: int = 0
    asked: int = 0
    place: int = 0

    def differences(self) -> dict[int, Difference]:
        self.asked += 1
        return {self.place: Difference(1, 2, 0)} if self.asked == self.asks else {}


def under(measured: list[Measurement], policy: Policy) -> list[tuple[str, float]]:
    return [
        (one.config.family if one.config.family == "cublaslt" else str(one.config["tile_n"]), one.median_us)
        for one in measured
        if one.policy is policy
    ]


def test_refused_and_wrong_candidates_of_the_library_do_not_take_part_and_are_told() -> None:
    bench = Bench([REFUSED, 4.0, WRONG, 3.0, REFUSED, REFUSED_LATER])
    *measured, first, wrong, another, later = ran(bench, [])
    assert [one.config.number("rank") for one in measured if one.policy is Policy.BURST] == [1, 3]
    assert bench.discarded == 4, "two that took part, one wrong and one refused"
    refused = (Outcome.LAUNCH, "cublasLtMatmul: CUDA_ERROR_NOT_SUPPORTED")
    told = {one.config.number("rank"): (one.outcome, one.detail) for one in (first, wrong, another, later)}
    assert told == {0: refused, 2: (Outcome.WRONG_RESULT, "wrong"), 4: refused, 5: refused}


def test_a_finalist_that_is_refused_keeps_nothing_loaded() -> None:
    bench = Bench(own_us={64: REFUSED_LATER})
    with pytest.raises(driver.CudaError):
        finals.Finals(bench).add(own(64), "")  # type: ignore[arg-type]
    assert bench.discarded == 1


def test_a_lost_context_ends_the_finals() -> None:
    bench = Bench([4.0])
    bench.ready = lambda config, digest: (_ for _ in ()).throw(  # type: ignore[method-assign]
        driver.CudaError("cuLaunchKernelEx", "CUDA_ERROR_ILLEGAL_ADDRESS")
    )
    with pytest.raises(driver.CudaError):
        finals.Finals(bench).add_baselines()  # type: ignore[arg-type]


def test_leaders_and_the_library_are_timed_under_every_policy() -> None:
    measured = ran(Bench([5.0, 6.0, 4.5], {64: 4.0, 128: 4.1, 192: 4.9}), [own(64), own(128), own(192)])
    everyone = [("64", 4.0), ("128", 4.1), ("192", 4.9), ("cublaslt", 5.0), ("cublaslt", 6.0), ("cublaslt", 4.5)]
    assert under(measured, Policy.BURST) == everyone
    # 192 is 22 % behind; of the library the first choice and the best stay, and the second best is far behind.
    leaders = [("64", 4.0), ("128", 4.1), ("cublaslt", 5.0), ("cublaslt", 4.5)]
    assert under(measured, Policy.SUSTAINED) == under(measured, Policy.ROUNDS) == leaders
    assert under(measured, Policy.CHAIN) == [(name, us + 1.0) for name, us in leaders]
    assert under(measured, Policy.CHAIN_PDL) == []


def test_the_first_of_ours_is_timed_under_every_policy_however_far_behind() -> None:
    measured = ran(Bench([4.0], {64: 6.0, 128: 5.0}), [own(64), own(128)])
    assert under(measured, Policy.SUSTAINED) == under(measured, Policy.ROUNDS) == [("128", 5.0), ("cublaslt", 4.0)]


def test_leaders_are_the_fastest_and_the_best_of_another_structure() -> None:
    alike = [FAMILY.config({"tile_n": 64, "raster_group": group}) for group in (1, 4, 8, 16)]
    others = [own(tile_n) for tile_n in (80, 96, 112)]
    own_us = {64: 4.0} | {one["tile_n"]: 4.1 for one in others}
    led = under(ran(Bench([4.0, 4.0, 4.0, 4.0], own_us), [*alike, *others]), Policy.SUSTAINED)
    assert [name for name, _ in led] == ["64"] * finals.FASTEST + ["80", *["cublaslt"] * 2]


@pytest.mark.parametrize(("decides", "led"), [(False, [64, 80, 96]), (True, [112, 256])])
def test_where_power_decides_large_tiles_lead_though_they_are_slower_in_bursts(decides: bool, led: list[int]) -> None:
    own_us = {64: 1000.0, 80: 1001.0, 96: 1002.0, 112: 1003.0, 256: 1010.0}
    bench = Bench([1020.0], own_us, may_reach_power_limit=decides, power_decides=decides)
    taken = under(ran(bench, [own(tile_n) for tile_n in own_us]), Policy.CHAIN)
    assert [name for name, _ in taken] == [*map(str, led), "cublaslt"]


@pytest.mark.parametrize(("second_us", "led"), [(4.03, 2), (4.05, 1)])
def test_the_librarys_second_takes_part_if_it_is_near_the_librarys_best(second_us: float, led: int) -> None:
    taken = under(ran(Bench([4.0, second_us], {64: 4.0}), [own(64)]), Policy.SUSTAINED)
    assert [name for name, _ in taken] == ["64", *["cublaslt"] * led]


def test_who_falls_behind_under_sustained_ends_earlier_but_the_first_choice_stays() -> None:
    measured = ran(Bench([5.0], {64: 4.0, 128: 4.1}), [own(64), own(128)])
    taken = {one.config.family + str(one.config.knobs.get("tile_n", "")): len(one.samples_us)
             for one in measured if one.policy is Policy.SUSTAINED}  # fmt: skip
    passes = regimes.SHORT.passes
    assert taken == {"sm90_wgmma64": passes, "sm90_wgmma128": 1, "cublaslt": passes}
    assert [one.product_joules for one in measured if one.policy is Policy.SUSTAINED] == [
        pytest.approx(700 * one.median_us / 1e6) for one in measured if one.policy is Policy.SUSTAINED
    ]


def test_the_librarys_first_choice_takes_part_in_every_pass_wherever_it_stands() -> None:
    measured = ran(Bench([5.0, 4.01, 4.0], {64: 4.0}), [own(64)])
    blocks = {one.config["rank"]: len(one.samples_us) for one in measured
              if one.policy is Policy.SUSTAINED and one.config.family == "cublaslt"}  # fmt: skip
    assert blocks == dict.fromkeys(range(3), regimes.SHORT.passes)


def test_no_more_rivals_take_part_than_outputs_can_be_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finals, "SLOTS", 4)
    bursts = under(ran(Bench([4.0, 4.1, 4.2, 4.3, 4.4], {64: 4.0}), [own(64)]), Policy.BURST)
    assert bursts == [("64", 4.0), ("cublaslt", 4.0), ("cublaslt", 4.1), ("cublaslt", 4.2)]


@pytest.mark.parametrize(
    ("limits", "decides", "pace"),
    [(False, False, regimes.BRIEF), (True, False, regimes.SHORT), (True, True, regimes.LONG)],
)
def test_blocks_are_as_long_as_what_power_decides_asks(limits: bool, decides: bool, pace: regimes.Pace) -> None:
    for behind, passes in ((0.9, pace.passes), (1.1, 1)):
        bench = Bench([1040.0], {128: 1000.0, 192: 1000.0 * (1 + pace.near * behind)}, may_reach_power_limit=limits,
                      power_decides=decides)  # fmt: skip
        made = ran(bench, [own(128), own(192)])
        sustained = [len(one.samples_us) for one in made if one.policy is Policy.SUSTAINED]
        assert sustained == [pace.passes, passes, pace.passes]
        blocks_us = bench.busy_us - sum(sum(one.samples_us) * 10 for one in made if one.policy is Policy.BURST)
        assert blocks_us > (pace.warm_up_seconds + sum(sustained) * pace.block_seconds) * 1e6


def test_blocks_are_long_where_memory_takes_all_the_power() -> None:
    bench = Bench([5.0], {64: 4.0, 128: 4.01}, may_reach_power_limit=False)
    bench.monitor.read = lambda: replace(CLOCKS, throttle_reasons=("sw_power_cap",))
    made = [one for one in ran(bench, [own(64), own(128)]) if one.policy is Policy.SUSTAINED]
    assert [(len(one.samples_us), one.product_joules) for one in made] == [
        (1, pytest.approx(700 * one.median_us / 1e6)) for one in made
    ]
    assert bench.busy_us > (regimes.CAPPED.warm_up_seconds + 3 * regimes.CAPPED.block_seconds) * 1e6


def test_where_power_decides_nothing_the_fastest_and_the_first_choice_get_a_block_for_their_energy() -> None:
    bench = Bench([5.0, 4.5, 4.6], {64: 4.0, 128: 4.01}, may_reach_power_limit=False)
    # One to warm up, and three passes, of which the library's fastest takes the first.
    bench.monitor.metered = telling(*[None] * (1 + 4 + 3 + 3), then=300.0)
    made = [one for one in ran(bench, [own(64), own(128)]) if one.policy is Policy.SUSTAINED]
    joules = {one.config.key: one.product_joules for one in made if one.product_joules}
    first, best = (family_named("cublaslt").config({"rank": rank}).key for rank in (0, 1))
    assert joules == pytest.approx({own(64).key: 4.0 * 300e-6, first: 5.0 * 300e-6, best: 4.5 * 300e-6})


@pytest.mark.parametrize(("power_decides", "chained"), [(True, 10), (False, 30)])
def test_turns_that_decide_nothing_are_a_third_of_those_asked_for(power_decides: bool, chained: int) -> None:
    measured = ran(Bench([5.0], {64: 4.0}, power_decides=power_decides), [own(64)], turns=30)
    assert {len(one.samples_us) for one in measured if one.policy is Policy.CHAIN} == {chained}
    assert {len(one.samples_us) for one in measured if one.policy is Policy.ROUNDS} == {10}


@pytest.mark.parametrize(("turns", "taken"), [(5, 5), (10, 6), (30, 10)])
def test_six_turns_are_taken_where_as_many_are_asked_for_though_they_decide_nothing(turns: int, taken: int) -> None:
    measured = ran(Bench([5.0], {64: 4.0}), [own(64)], turns)
    assert {len(one.samples_us) for one in measured if one.policy is Policy.ROUNDS} == {taken}


@pytest.mark.parametrize(
    ("samples", "share", "mean"),
    [
        ([9.0, 9.0, 5.0, 6.0, 7.0], 0.5, 6.0),  # 18 of 36 microseconds are skipped
        ([4.0, 4.0, 4.0, 8.0], 0.1, 16 / 3),  # the sample in which the share ends is skipped whole
        ([4.0, 6.0], 0.0, 5.0),
        ([4.0, 6.0], 0.99, 6.0),
        ([4.0], 0.9, 4.0),
    ],
)
def test_the_beginning_of_a_block_does_not_count(samples: list[float], share: float, mean: float) -> None:
    assert regimes.mean_behind(samples, share) == pytest.approx(mean)


def test_a_rival_that_is_wrong_in_its_bursts_leads_nobody_away() -> None:
    bench = Bench([5.0], {64: 3.0, 128: 4.0, 192: 4.05}, Outputs({0: Difference(1, 2, 0)}))
    measured = ran(bench, [own(64), own(128), own(192)])
    correct = [one for one in measured if one.outcome is Outcome.CORRECT]
    assert [name for name, _ in under(correct, Policy.SUSTAINED)] == ["128", "192", "cublaslt"]
    bursts = [len(one.samples_us) for one in correct if one.policy is Policy.BURST]
    assert bursts == [finals.BURSTS, finals.BURSTS, finals.FIRST_BURSTS], "a wrong one ends nobody's bursts"
    assert {one.config["tile_n"] for one in measured if one.outcome is Outcome.WRONG_RESULT} == {64}


def test_a_rival_that_is_wrong_in_its_turns_takes_no_part_in_what_follows() -> None:
    measured = ran(Bench([5.0], {64: 3.9, 128: 4.0, 192: 4.02}, Later(asks=22)), [own(64), own(128), own(192)])
    blocks = {one.config["tile_n"]: len(one.samples_us) for one in measured
              if one.policy is Policy.SUSTAINED and one.config.family != "cublaslt"}  # fmt: skip
    assert blocks == {128: 2, 192: 2}


def test_one_of_the_librarys_that_is_wrong_in_its_blocks_is_not_timed_among_early_kernels() -> None:
    # One that starts early takes part in no blocks: there the library's is second.
    outputs = Later(asks=16, place=1)
    measured = ran(Bench([4.05], {64: 4.0}, outputs), [own(64), own(64, pdl=1)])
    wrong = {one.policy for one in measured if one.outcome is Outcome.WRONG_RESULT}
    assert outputs.asked > outputs.asks
    assert wrong == {Policy.BURST, Policy.CHAIN, Policy.ROUNDS, Policy.SUSTAINED}


def test_a_rival_that_is_wrong_and_fast_in_its_blocks_costs_the_others_none() -> None:
    class Lazy(Timed):
        """Does less in blocks."""

        def start(self, stream: object, replays: int) -> None:
            super().start(stream, replays)
            self.us = 1.0 if replays > 1000 else 4.0

    bench = Bench([5.0], {64: 4.0, 128: 4.01}, Later(asks=16))
    made = finals.Finals(bench)  # type: ignore[arg-type]
    for tile_n in bench.own_us:
        made.add(own(tile_n), "")
    made._rivals[0].ready.timed = Lazy(4.0)  # type: ignore[assignment]
    sustained = [one for one in made.run(5) if one.policy is Policy.SUSTAINED]
    assert [one.outcome for one in sustained] == [Outcome.WRONG_RESULT, Outcome.CORRECT]
    assert len(sustained[1].samples_us) == regimes.SHORT.passes
    assert bench.restored == 1


def test_a_launch_of_a_block_is_counted_among_all_of_it() -> None:
    class Slower(Timed):
        """Takes longer in blocks, where the card is hot."""

        def start(self, stream: object, replays: int) -> None:
            super().start(stream, replays)
            self.us = 4.0 if replays < 1000 else 5.0
            runs.append(replays * self.launches)

    runs = list[int]()
    bench = Bench([5.0], {64: 4.0}, Later(asks=14))
    made = bench.ready(own(64), "")
    made.timed = Slower(4.0)
    ready = bench.ready
    bench.ready = lambda config, digest: ready(config, digest) if config.family == "cublaslt" else made  # type: ignore[method-assign]
    (wrong, *_) = (one for one in ran(bench, [own(64)]) if one.outcome is Outcome.WRONG_RESULT)
    said = re.search(r"launch [\d,]+ of ([\d,]+)", wrong.detail)
    assert said
    launches = int(said[1].replace(",", ""))
    assert launches in runs
    assert launches >= regimes.SHORT.block_seconds * 1e6 / 4.0


def test_a_config_with_dependent_launch_is_timed_only_among_kernels_that_use_it_beside_the_fastest_without() -> None:
    measured = ran(Bench([5.0], {64: 4.0, 128: 4.1}), [own(64), own(128), own(64, pdl=1)])
    early = [one for one in measured if one.config.knobs.get("pdl")]
    assert [one.policy for one in early] == [Policy.CHAIN_PDL]
    assert under(measured, Policy.CHAIN_PDL) == [("64", 4.5), ("64", 4.5), ("cublaslt", 5.5)]


def test_a_rival_that_writes_something_else_while_it_is_timed_is_wrong_everywhere() -> None:
    bench = Bench([5.0], {64: 4.0, 128: 4.1}, Outputs({1: Difference(1, 2, 0)}))
    measured = ran(bench, [own(64), own(128)])
    wrong = [one for one in measured if one.outcome is Outcome.WRONG_RESULT]
    assert {one.config["tile_n"] for one in wrong} == {128}
    assert bench.restored == 1
    assert wrong[0].detail.startswith("right when verified, wrong while timed: launch 19 of 20")


def test_no_rival_always_runs_behind_the_same_one_and_none_is_left_out() -> None:
    orders = [regimes.order_of(number, 10) for number in range(20)]
    assert all(sorted(order) == list(range(10)) for order in orders)
    for rival in range(10):
        before = {order[order.index(rival) - 1] for order in orders if order.index(rival)}
        assert len(before) >= 5
    assert {len(regimes.order_of(number, 1)) for number in range(3)} == {1}


def test_what_the_library_does_not_list_comes_behind_what_it_lists_and_is_no_first_choice() -> None:
    bench = Bench([4.2, 4.1, 4.0], {64: 4.05}, beyond=1)
    measured = ran(bench, [own(64), family_named("cublaslt").config({"rank": 2})])
    assert under(measured, Policy.BURST) == [("64", 4.05), ("cublaslt", 4.2), ("cublaslt", 4.1), ("cublaslt", 4.0)]
    # The first choice is in every pass; the listed one is more than 1 % behind the fastest of the library's.
    assert under(measured, Policy.SUSTAINED) == [("64", 4.05), ("cublaslt", 4.2), ("cublaslt", 4.0)]
    assert bench.discarded == 4
