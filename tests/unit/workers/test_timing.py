"""Arithmetic of timing that needs no GPU."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from cuda.pathfinder import DynamicLibNotFoundError

from workers.cuda import device, regimes, timing


def test_every_copy_is_launched_equally_often_in_a_graph() -> None:
    for expected_us in (0.5, 3.0, 40.0, 200.0, 5000.0):
        for copies in (2, 3, 7, 160):
            launches = timing.launches_for(expected_us, copies)
            assert launches % copies == 0
            assert launches >= max(copies, timing.MIN_LAUNCHES)
            assert launches >= timing.MIN_SHORT_LAUNCHES or expected_us >= timing.SHORT_US
            assert launches <= timing.MAX_LAUNCHES
            long_enough = (launches + 1) * expected_us > timing.REPLAY_US
            assert long_enough or launches + copies > timing.MAX_LAUNCHES


def test_only_a_candidate_far_behind_is_given_up_on() -> None:
    assert not timing.hopeless(250, float("inf"))
    assert not timing.hopeless(250, 200)
    assert timing.hopeless(300, 200)
    # The host's time for a launch does not count.
    assert not timing.hopeless(24, 8)


def test_one_slow_replay_does_not_make_a_kernel_unsteady() -> None:
    assert timing.spread([10.0, 10.1, 10.2, 10.1, 99.0]) < timing.STEADY_SPREAD
    assert timing.spread([10.0, 10.1, 20.0, 10.1, 20.0]) > timing.STEADY_SPREAD
    assert timing.spread([10.0, 20.0]) > timing.STEADY_SPREAD


def samples(middle: float, noise: float, count: int, seed: int = 0) -> list[float]:
    rng = random.Random(seed)
    return [middle * (1 + rng.gauss(0, noise)) for _ in range(count)]


def test_finals_stop_when_the_leaders_are_known_well_enough() -> None:
    rule = timing.StoppingRule.of(10)
    quiet = [samples(100, 0.001, 10), samples(101, 0.001, 10, 1)]
    assert rule.satisfied(quiet)
    assert not rule.satisfied([rival[:9] for rival in quiet])
    noisy = [*quiet, samples(101, 0.05, 10, 2)]
    assert not rule.satisfied(noisy)
    # A rival that can't win may be noisy.
    assert rule.satisfied([*quiet, samples(150, 0.05, 10, 3)])
    assert rule.most_turns == 30


def test_a_sample_is_a_replay_by_its_launches_and_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: list[int] = []

    @contextmanager
    def capture() -> Iterator[list[Any]]:
        yield [SimpleNamespace(upload=lambda _: None, launch=lambda _: None)]

    @contextmanager
    def around(_: object) -> Iterator[None]:
        yield

    monkeypatch.setattr(timing, "Stopwatch", lambda: SimpleNamespace(around=around, wait=lambda: None, us=1500.0))
    monkeypatch.setattr(
        timing, "Event", lambda: SimpleNamespace(record=lambda _: None, hold=lambda _: None, destroy=lambda: None)
    )
    graph = timing.TimedGraph(recorded.append, (1, 2, 3), 50.0, SimpleNamespace(capture=capture))  # type: ignore[arg-type]
    assert recorded == [1, 2, 3] * 10
    graph.start(None, 2)  # type: ignore[arg-type]
    graph.start(None, 5)  # type: ignore[arg-type]
    assert graph.samples_us() == (50.0,) * 7
    assert graph.samples_us() == ()


def test_turns_away_from_the_others_clock_are_disturbed() -> None:
    from workers.measurement import Clocks

    def one(mhz: int, *reasons: str) -> object:
        return regimes.Turn((1.0,), Clocks(mhz, 3201, 600.0, 60, reasons))

    turns = [one(1700), one(1780), one(1610), one(1690, "sw_power_cap"), one(1700, "hw_thermal_slowdown"), one(1790)]
    assert [kept.clocks.sm_mhz for kept in regimes.undisturbed(turns)] == [1700, 1780, 1690]


def test_a_driver_older_than_the_compiler_is_refused_with_both_versions() -> None:
    from workers.errors import DriverError

    device.check_driver_age(13000, "13.5")
    device.check_driver_age(14010, "13.0")
    with pytest.raises(DriverError, match=r"CUDA 12\.4.*NVRTC 13\.0"):
        device.check_driver_age(12040, "13.0")


def test_a_machine_without_a_driver_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from workers.errors import DriverError

    def missing(flags: int) -> None:
        # What cuda.bindings raise is a RuntimeError.
        raise DynamicLibNotFoundError('"cuda" is an NVIDIA driver library')

    monkeypatch.setattr("workers.cuda.device.cu.cuInit", missing)
    with pytest.raises(DriverError, match=r"no NVIDIA driver is here \(libcuda\.so\.1\)"):
        device.open_device(0)
