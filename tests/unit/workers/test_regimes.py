"""What a rival writes while it is timed, and which of its runs count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from space.config import Config
from tests.fake_bench import CLOCKS, Bench, Outputs, Timed, metered, own, ran, telling
from tuner.evidence.picks import SUSTAINED_TIE
from workers.cuda import finals, regimes
from workers.cuda.driver import CudaError
from workers.cuda.outputs import Difference
from workers.measurement import NO_ENERGY, Clocks, Outcome, Policy


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regimes, "BURST_REST_SECONDS", 0.0)


@dataclass
class Written(Outputs):
    """Outputs that hold poison or, as whole numbers do whoever computes them, the one right result."""

    held: object = "nothing yet"

    def poison(self, turn: int = 0) -> None:
        self.held = "poison"

    def compare(self, verified: object, slot: int = 0) -> None:
        if self.held != verified:
            self.changed[slot] = Difference(1, 2, 0)


@dataclass
class Writing(Bench):
    """A bench whose candidates write what they should, but for one under one policy, which writes nothing there."""

    lazy: tuple[int, Policy] = (0, Policy.BURST)
    #: Sums in floating point end in other bits in another candidate.
    alike: bool = True

    def ready(self, config: Config, digest: str) -> Any:  # noqa: ANN401
        made = super().ready(config, digest)
        made.timed.write = self._writing(config, Policy.BURST)
        return made

    def chained(self, ready: Any, *, early: bool) -> Timed:  # noqa: ANN401
        made = super().chained(ready, early=early)
        made.write = self._writing(ready.config, Policy.CHAIN_PDL if early else Policy.CHAIN)
        # Plain graphs run again when chains have run.
        ready.timed.write = self._writing(ready.config, Policy.ROUNDS)
        return made

    def verify(self, ready: Any) -> Any:  # noqa: ANN401
        return SimpleNamespace(reason="", digest=self._right(ready.config), once_us=ready.timed.us)

    def _right(self, config: Config) -> str:
        return "right" if self.alike else config.key

    def _writing(self, config: Config, policy: Policy) -> Callable[[], None]:
        if (config.knobs.get("tile_n"), policy) == self.lazy:
            return lambda: None
        return lambda: setattr(self.outputs, "held", self._right(config))


@pytest.mark.parametrize(("policy", "timed"), [
    (None, [Policy.SUSTAINED, Policy.BURST, Policy.CHAIN, Policy.ROUNDS]), (Policy.BURST, [Policy.BURST]),
    (Policy.CHAIN, [Policy.BURST, Policy.CHAIN]), (Policy.ROUNDS, [Policy.BURST, Policy.CHAIN, Policy.ROUNDS]),
])  # fmt: skip
def test_a_rival_that_writes_nothing_under_a_policy_is_wrong_and_no_other(
    policy: Policy | None, timed: list[Policy]
) -> None:
    bench = Writing([5.0], {64: 4.0, 128: 4.01, 192: 4.02}, Written(), lazy=(128, policy) if policy else (0, policy))
    measured = ran(bench, [own(64), own(128), own(192)])
    wrong = {one.config.key for one in measured if one.outcome is Outcome.WRONG_RESULT}
    assert wrong == ({own(128).key} if policy else set())
    assert [one.policy for one in measured if one.config == own(128)] == timed


@dataclass
class Spoiling(Writing):
    """A bench whose lazy candidate spoils what the others read, as semaphores that it leaves, until all is restored."""

    spoilt: bool = False

    def restore(self) -> None:
        super().restore()
        self.spoilt = False

    def _writing(self, config: Config, policy: Policy) -> Callable[[], None]:
        if (config.knobs.get("tile_n"), policy) == self.lazy:
            return lambda: setattr(self, "spoilt", True)
        return lambda: setattr(self.outputs, "held", "spoilt" if self.spoilt else "right")


@pytest.mark.parametrize("policy", [Policy.BURST, Policy.SUSTAINED])
@pytest.mark.parametrize("lazy", [64, 128, 192])
def test_who_spoils_what_the_others_read_is_wrong_and_they_are_not(policy: Policy, lazy: int) -> None:
    bench = Spoiling([5.0], {64: 4.0, 128: 4.01, 192: 4.02}, Written(), lazy=(lazy, policy))
    made = finals.Finals(bench)  # type: ignore[arg-type]

    def metered_now() -> Any:  # noqa: ANN401
        for rival in made._rivals:
            rival.ready.timed.write = bench._writing(rival.ready.config, Policy.SUSTAINED)  # type: ignore[attr-defined]
        return metered()

    bench.monitor.metered = metered_now
    for tile_n in bench.own_us:
        made.add(own(tile_n), "")
    made.add_baselines()
    wrong = {one.config.key for one in made.run(5) if one.outcome is Outcome.WRONG_RESULT}
    assert wrong == {own(lazy).key}


def test_what_a_rival_writes_is_compared_with_what_it_wrote_when_it_was_verified() -> None:
    bench = Writing([5.0, 4.9], {64: 4.0, 128: 4.01}, Written(), alike=False)
    assert {one.outcome for one in ran(bench, [own(64), own(128), own(64, pdl=1)])} == {Outcome.CORRECT}


def test_a_block_lasts_as_long_as_bursts_say_not_as_the_launch_that_waits_for_the_host() -> None:
    rival: Any = SimpleNamespace(
        ready=SimpleNamespace(timed=Timed(4.0)), verdict=SimpleNamespace(once_us=40.0),
        taken={Policy.BURST: regimes.Taken((4.0,), CLOCKS)},
    )  # fmt: skip
    assert regimes._replays(rival, 1.0) == 1e6 / 4.0 / 10


def test_a_rival_that_writes_nothing_in_its_blocks_is_wrong() -> None:
    bench = Writing([5.0], {64: 4.0, 128: 4.01}, Written())

    def metered_now() -> Any:  # noqa: ANN401
        # From the first block on.
        finalists[128].timed.write = lambda: None
        return metered()

    bench.monitor.metered = metered_now
    made, finalists = finals.Finals(bench), {}  # type: ignore[arg-type]
    for tile_n in (64, 128):
        made.add(own(tile_n), "")
        finalists[tile_n] = made._rivals[-1].ready
    made.add_baselines()
    wrong = {one.config.key for one in made.run(5) if one.outcome is Outcome.WRONG_RESULT}
    assert wrong == {own(128).key}


class Warming(Timed):
    """Slower at first: a quarter of its runs take three times as long, half of the time in all."""

    def samples_us(self) -> tuple[float, ...]:
        count, self.started = self.started, 0
        slow = -(-count // 4)
        return (3 * self.us,) * slow + (self.us,) * (count - slow)


@pytest.mark.parametrize(("us", "runs"), [(4.0, 2), (40.0, 1)])
def test_a_short_graphs_burst_is_its_second_run_and_a_long_ones_its_only_one(us: float, runs: int) -> None:
    bench = Bench(own_us={64: us})
    made = finals.Finals(bench)  # type: ignore[arg-type]
    made.add(own(64), "")
    made._rivals[0].ready.timed = Warming(us)
    regimes.take_bursts(bench, made._rivals, 1, 1, 0.04)  # type: ignore[arg-type]
    assert made._rivals[0].taken[Policy.BURST].samples_us == ((us,) if runs == 2 else (3 * us,))


def test_two_passes_in_turn_put_each_rival_at_the_same_mean_place() -> None:
    # So a card that slows down by the same from block to block slows all rivals' means alike.
    first, second, third = (regimes.order_of_pass(number, 7) for number in range(3))
    assert {first.index(rival) + second.index(rival) for rival in range(7)} == {6}
    assert sorted(first) == sorted(third) == list(range(7))
    assert third not in (first, second)


@pytest.mark.parametrize(("kept", "second"), [(True, [0, 1, 2]), (False, [0, 2])])
def test_blocks_run_in_another_order_in_each_pass_without_who_fell_behind(kept: bool, second: list[int]) -> None:
    bench, ran_in = Bench(own_us={64: 4.0, 128: 4.5, 192: 4.0}), list[int]()
    made = finals.Finals(bench)  # type: ignore[arg-type]
    for place, tile_n in enumerate(bench.own_us):
        made.add(own(tile_n), "")
        made._rivals[-1].ready.timed.write = lambda place=place: ran_in.append(place)  # type: ignore[misc, attr-defined]
    regimes.take_sustained(bench, made._rivals, regimes.SHORT, lambda rival: kept)  # type: ignore[arg-type]
    order = regimes.order_of(0, 3)
    assert ran_in == [0, *order, *(place for place in order[::-1] if place in second)]


@pytest.mark.parametrize(("hot", "remark"), [(0, ""), (1, regimes.SLOWED)])
def test_blocks_in_which_the_card_protects_itself_count_and_say_so(hot: int, remark: str) -> None:
    clocks = [CLOCKS, *[Clocks(1200, 3201, 600.0, 87, ("sw_thermal_slowdown",))] * hot, *[CLOCKS] * 2]
    bench = Bench(own_us={64: 4.0})
    made = finals.Finals(bench)  # type: ignore[arg-type]
    made.add(own(64), "")
    bench.monitor.read = lambda: clocks.pop(0)
    regimes.take_sustained(bench, made._rivals, regimes.SHORT, lambda rival: True)  # type: ignore[arg-type]
    taken = made._rivals[0].taken[Policy.SUSTAINED]
    assert (len(taken.samples_us), taken.remark) == (regimes.SHORT.passes, remark)


def test_every_burst_begins_behind_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    log = list[str]()

    class Resting:
        def __init__(self, seconds: float) -> None:
            assert seconds == regimes.BURST_REST_SECONDS

        def wait(self) -> None:
            log.append("rest")

    monkeypatch.setattr(regimes, "Rest", Resting)
    bench = Bench(own_us={64: 4.0})
    made = finals.Finals(bench)  # type: ignore[arg-type]
    made.add(own(64), "")
    made._rivals[0].ready.timed.write = lambda: log.append("run")  # type: ignore[attr-defined]
    regimes.take_bursts(bench, made._rivals, 2, 2, 0.04)  # type: ignore[arg-type]
    assert log == ["rest", "run"] * 2


def test_a_sample_of_sustained_is_the_mean_behind_the_time_that_a_block_needs_to_settle() -> None:
    bench = Bench(own_us={64: 4.0})
    made = finals.Finals(bench)  # type: ignore[arg-type]
    made.add(own(64), "")
    made._rivals[0].ready.timed = Warming(4.0)
    pace = regimes.Pace(1.0, 0.25, 0.25, passes=2, near=0.01)
    regimes.take_sustained(bench, made._rivals, pace, lambda rival: True)  # type: ignore[arg-type]
    taken = made._rivals[0].taken[Policy.SUSTAINED].samples_us
    assert taken == (pytest.approx(4.0, rel=1e-3),) * pace.passes


def test_graphs_of_chains_are_freed_where_the_driver_refuses_a_later_one() -> None:
    bench, destroyed = Bench(own_us={64: 4.0, 128: 5.0}), list[float]()
    made = finals.Finals(bench)  # type: ignore[arg-type]
    for tile_n in bench.own_us:
        made.add(own(tile_n), "")

    def chained(ready: Any, *, early: bool) -> Any:  # noqa: ANN401
        if ready.timed.us == 5.0:
            raise CudaError("cuGraphInstantiate", "CUDA_ERROR_OUT_OF_MEMORY")
        return SimpleNamespace(destroy=lambda: destroyed.append(ready.timed.us))

    bench.chained = chained  # type: ignore[method-assign]
    with pytest.raises(CudaError):
        regimes.take_chained(bench, made._rivals, 3, Policy.CHAIN)  # type: ignore[arg-type]
    assert destroyed == [4.0]


def test_turns_begin_on_a_clock_that_has_settled_and_all_that_the_gpu_works_is_counted() -> None:
    bench = Bench(own_us={64: 4.0})
    made = finals.Finals(bench)  # type: ignore[arg-type]
    made.add(own(64), "")
    regimes.take_chained(bench, made._rivals, 3, Policy.CHAIN)  # type: ignore[arg-type]
    # One replay to heat up, and three turns, of graphs of ten launches.
    assert bench.busy_us == (1 + 3) * 10 * 5.0


def test_fewer_turns_than_an_interval_needs_are_taken_where_fewer_are_asked_for() -> None:
    bench = Bench(own_us={64: 4.0})
    made = finals.Finals(bench)  # type: ignore[arg-type]
    made.add(own(64), "")
    for turns, counted in ((3, 3), (9, 6), (30, 10)):
        regimes.take_rounds(bench, made._rivals, turns)  # type: ignore[arg-type]
        taken = made._rivals[0].taken[Policy.ROUNDS]
        assert (len(taken.samples_us), taken.remark) == (counted, "")


@pytest.mark.parametrize(("watts", "joules"), [
    ((None, None), None), ((None, 600.0), 600 * 4e-6), ((500.0, 600.0), 550 * 4e-6),
])  # fmt: skip
def test_blocks_whose_energy_nothing_counts_cost_no_joules_and_the_last_ones_clocks_are_kept(
    watts: tuple[float | None, ...], joules: float | None
) -> None:
    # The work before the first block is metered too, and does not count.
    block, temperatures = telling(900.0, *watts), iter((40, 50, 60))
    bench = Bench(own_us={64: 4.0})
    made = finals.Finals(bench)  # type: ignore[arg-type]
    made.add(own(64), "")
    bench.monitor = SimpleNamespace(metered=block, read=lambda: Clocks(1500, 3201, 690.0, next(temperatures)))
    regimes.take_sustained(bench, made._rivals, regimes.SHORT, lambda rival: True)  # type: ignore[arg-type]
    taken = made._rivals[0].taken[Policy.SUSTAINED]
    assert taken.product_joules == (pytest.approx(joules) if joules else None)
    assert taken.clocks.temperature_c == 60
    assert taken.remark == ("" if joules else NO_ENERGY)


def test_blocks_too_short_for_any_counter_say_nothing_of_it() -> None:
    bench = Bench(own_us={64: 4.0})
    made = finals.Finals(bench)  # type: ignore[arg-type]
    made.add(own(64), "")
    bench.monitor = SimpleNamespace(metered=telling(), read=lambda: Clocks(1500, 3201, 690.0, 50))
    regimes.take_sustained(bench, made._rivals, regimes.BRIEF, lambda rival: True)  # type: ignore[arg-type]
    taken = made._rivals[0].taken[Policy.SUSTAINED]
    assert (taken.product_joules, taken.remark) == (None, "")


@pytest.mark.parametrize("watts", [None, 300.0])
def test_energy_of_brief_blocks_comes_from_a_longer_one_which_is_no_sample(watts: float | None) -> None:
    bench = Bench(own_us={64: 4.0})
    made = finals.Finals(bench)  # type: ignore[arg-type]
    made.add(own(64), "")
    # Four short blocks, the first to warm up, and the longer one.
    bench.monitor.metered = telling(None, None, None, None, watts)
    regimes.take_sustained(bench, made._rivals, regimes.BRIEF, lambda rival: True)  # type: ignore[arg-type]
    regimes.take_energy(bench, made._rivals)  # type: ignore[arg-type]
    taken = made._rivals[0].taken[Policy.SUSTAINED]
    assert len(taken.samples_us) == regimes.BRIEF.passes
    assert taken.product_joules == (pytest.approx(300.0 * 4e-6) if watts else None)
    assert taken.remark == ("" if watts else NO_ENERGY)


def test_the_energy_of_a_launch_is_the_power_and_the_time_of_one_block() -> None:
    bench = Bench(own_us={64: 4.0})
    made = finals.Finals(bench)  # type: ignore[arg-type]
    made.add(own(64), "")
    regimes.take_sustained(bench, made._rivals, regimes.BRIEF, lambda rival: True)  # type: ignore[arg-type]
    made._rivals[0].ready.timed.us = 5.0  # type: ignore[misc]
    regimes.take_energy(bench, made._rivals)  # type: ignore[arg-type]
    taken = made._rivals[0].taken[Policy.SUSTAINED]
    assert (taken.median_us, taken.product_joules) == (4.0, pytest.approx(700.0 * 5e-6))


def test_a_rival_that_writes_nothing_in_the_block_for_its_energy_is_wrong() -> None:
    bench = Writing([5.0], {64: 4.0, 128: 4.01}, Written())
    made = finals.Finals(bench)  # type: ignore[arg-type]
    for tile_n in bench.own_us:
        made.add(own(tile_n), "")
    regimes.take_sustained(bench, made._rivals, regimes.BRIEF, lambda rival: True)  # type: ignore[arg-type]
    made._rivals[1].ready.timed.write = lambda: None  # type: ignore[attr-defined]
    regimes.take_energy(bench, made._rivals)  # type: ignore[arg-type]
    assert [rival.ready.config["tile_n"] for rival in made._rivals if rival.wrong] == [128]


@pytest.mark.parametrize(("steady", "counted", "remark"), [
    (9, 3, ""), (3, 3, ""), (2, 9, "7 of 9 turns had an unsteady clock"), (0, 9, "9 of 9 turns had an unsteady clock"),
])  # fmt: skip
def test_where_too_few_turns_had_a_steady_clock_all_count_and_say_so(steady: int, counted: int, remark: str) -> None:
    clocks = [CLOCKS] * steady + [Clocks(1500, 3201, 690.0, 50, ("hw_slowdown",))] * (9 - steady)
    bench = Bench(own_us={64: 4.0})
    made = finals.Finals(bench)  # type: ignore[arg-type]
    made.add(own(64), "")
    bench.monitor.read = lambda: clocks.pop(0)
    regimes.take_chained(bench, made._rivals, 3, Policy.CHAIN)  # type: ignore[arg-type]
    taken = made._rivals[0].taken[Policy.CHAIN]
    assert (len(taken.samples_us), taken.remark) == (counted, remark)


def test_who_may_be_picked_takes_part_in_every_pass() -> None:
    assert regimes.LONG.near > SUSTAINED_TIE
