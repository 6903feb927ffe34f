"""Finals: cuBLASLt's rivals, overlap of preparation and GPU work, and the order of each turn."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from space.config import Config
from space.registry import family_named
from workers.cuda import driver, finals
from workers.measurement import Policy

REFUSED, WRONG = -1.0, -2.0


@dataclass
class Timed:
    """Takes a recorded graph's place."""

    rank: int
    us: float
    log: list[str]
    launches: int = 10

    def start(self, stream: object, replays: int) -> None:
        self.log.append(f"start {self.rank}")

    def samples_us(self) -> tuple[float, ...]:
        self.log.append(f"samples {self.rank}")
        return (100 * self.us, self.us, self.us)


@dataclass
class Bench:
    """Takes the GPU's place; `times_us` by rank."""

    times_us: list[float]
    log: list[str] = field(default_factory=list)
    stream: object = None
    busy_us: float = 0.0

    @property
    def baselines(self) -> tuple[Config, ...]:
        return tuple(family_named("cublaslt").config({"rank": rank}) for rank in range(len(self.times_us)))

    def ready(self, config: Config, digest: str, policy: Policy) -> Any:  # noqa: ANN401
        rank = config.number("rank")
        self.log.append(f"ready {rank}")
        if self.times_us[rank] == REFUSED:
            raise driver.CudaError("cublasLtMatmul", "CUDA_ERROR_NOT_SUPPORTED")
        timed = Timed(rank, self.times_us[rank], self.log)
        return SimpleNamespace(timed=timed, discard=lambda: self.log.append(f"discard {rank}"))

    def verify(self, ready: Any) -> Any:  # noqa: ANN401
        return SimpleNamespace(reason="wrong" if ready.timed.us == WRONG else "")


def added(times_us: list[float]) -> tuple[list[int], list[str]]:
    """The ranks that became rivals, and what was done."""
    bench = Bench(times_us)
    made = finals.Finals(bench)
    made.add_baselines(Policy.COLD_GRAPH)
    return [rival.ready.timed.rank for rival in made._rivals], bench.log


@pytest.mark.parametrize(
    ("times_us", "rivals"),
    [
        ([], []),
        ([4.0], [0]),
        ([4.0, 5.0, 6.0], [0]),
        ([4.0, 3.0, 2.0, 5.0], [0, 2]),
        # Refused or wrong ones do not take part.
        ([REFUSED, 4.0, WRONG, 3.0, REFUSED], [1, 3]),
        ([WRONG, REFUSED], []),
    ],
)
def test_rivals_are_the_first_choice_and_the_fastest(times_us: list[float], rivals: list[int]) -> None:
    assert added(times_us)[0] == rivals


def test_one_runs_while_the_next_is_made_ready() -> None:
    _, log = added([4.0, REFUSED, 3.0, 5.0])
    assert log == [
        "ready 0", "start 0", "ready 1", "samples 0", "ready 2", "start 2", "ready 3", "samples 2", "start 3",
        "samples 3", "discard 3",
    ]  # fmt: skip


def test_no_rival_always_runs_behind_the_same_one_and_none_is_left_out() -> None:
    orders = [finals.order_of(number, 10) for number in range(20)]
    assert all(sorted(order) == list(range(10)) for order in orders)
    for rival in range(10):
        before = {order[order.index(rival) - 1] for order in orders if order.index(rival)}
        assert len(before) >= 5
    assert {len(finals.order_of(number, 1)) for number in range(3)} == {1}
