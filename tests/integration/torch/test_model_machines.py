"""How arms are timed: in turns of both orders, behind what does not count, and divided by what ran."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

from benchmarks.model import machines, measuring  # noqa: E402
from benchmarks.model.machines import Arm, Cpu, Pace, alternating, host_us, paired  # noqa: E402


class Clocked(Cpu):
    """Runs return their microseconds, by which the clock goes on."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waited = 0

    def us(self, run: Callable[[], Any], runs: int) -> float:
        taken = sum(run() for _ in range(runs))
        self.now += taken / 1e6
        return float(taken) / runs

    def wait(self) -> None:
        self.waited += 1


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Clocked:
    machine = Clocked()
    monkeypatch.setattr(machines.time, "perf_counter", lambda: machine.now)
    return machine


def test_turns_change_their_order_and_what_the_arm_before_leaves_does_not_count(machine: Clocked) -> None:
    begun = list[tuple[str, float]]()

    def arm(name: str, us: float) -> Arm:
        @contextmanager
        def within() -> Iterator[None]:
            begun.append((name, machine.now))
            yield

        # Twice as slow at first, as behind a hungrier arm.
        return Arm(lambda: us * (2 if machine.now < begun[-1][1] + 0.02 else 1), within)

    taken = alternating(machine, {"a": arm("a", 100.0), "b": arm("b", 60.0)}, Pace(3, 0.02, 0.05, first_seconds=1.0))
    assert taken == {"a": [pytest.approx(100.0)] * 3, "b": [pytest.approx(60.0)] * 3}
    assert [name for name, _ in begun] == ["a", "a", "b", "b", "a", "a", "b"]
    # Before the first turn the limiter settles.
    assert 1.0 <= begun[1][1] < 1.1
    assert all(after - before >= 0.07 for (_, before), (_, after) in pairwise(begun[1:]))


@pytest.mark.parametrize(("most_apart", "pairs"), [(0.11, 8), (0.09, 24)])
def test_pairs_alternate_and_those_too_far_apart_are_measured_again(
    machine: Clocked, most_apart: float, pairs: int
) -> None:
    noted = list[str]()

    def of(name: str, us: float) -> Callable[[int], Callable[[], float]]:
        def run(count: int) -> float:
            noted.append(f"{name}{count}")
            return us * count

        return lambda count: lambda: run(count)

    us, ratio = paired(machine, of("first ", 11.0), of("second ", 10.0), most_apart, 0.0)
    assert (us, ratio) == (pytest.approx(10.0), pytest.approx(1.1))
    # A look at the second one says how many runs a graph holds.
    assert noted[:7] == ["second 1"] * 3 + ["first 200", "second 200", "second 200", "first 200"]
    assert noted.count("first 200") == noted.count("second 200") == pairs


def test_the_hosts_time_is_that_of_one_call(machine: Clocked) -> None:
    def call() -> None:
        machine.now += 5e-6

    assert host_us(machine, call, batches=3, runs=40) == pytest.approx(5.0)
    # Before each batch, and behind the last.
    assert machine.waited == 4


def test_calls_that_are_passed_on_are_told_apart_and_those_of_a_graph_counted(
    machine: Clocked, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = list[bool | None]([None])

    def install(eager: bool) -> Any:  # noqa: ANN401
        state.append(eager)
        return SimpleNamespace(remove=lambda: state.append(None))

    monkeypatch.setattr(measuring, "host_us", lambda *_: {None: 1.0, False: 2.0, True: 4.0}[state[-1]])
    monkeypatch.setattr(measuring, "alternating", lambda machine, arms, pace: {"torch": [100.0], "ours": [150.0]})
    said = measuring.passed_on(machine, install)
    assert "takes 1.00 µs of the host without a table, 2.00 µs with it (+1.00 µs), and 4.00 µs" in said
    assert "(+3.00 µs); in a graph 2.000 µs without and 3.000 µs with it." in said
    assert state[-1] is None
