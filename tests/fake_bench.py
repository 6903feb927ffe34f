"""A bench in the GPU's place for finals: candidates with the times that a test gives them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from space.config import Config
from space.family import family_named
from tests.support import FAMILY
from workers.cuda import driver, finals
from workers.cuda.outputs import Difference
from workers.measurement import Clocks, Measurement, Outcome, Policy

#: Times of candidates that are refused when they are recorded, wrong, and refused when they are launched.
REFUSED, WRONG, REFUSED_LATER = -1.0, -2.0, -3.0
CLOCKS = Clocks(1500, 3201, 690.0, 50)


@dataclass(eq=False)
class Timed:
    """Takes a recorded graph's place."""

    us: float
    launches: int = 10
    started: int = 0
    write: Callable[[], None] = lambda: None

    def start(self, stream: object, replays: int) -> None:
        self.started += replays
        self.write()

    def samples_us(self) -> tuple[float, ...]:
        taken, self.started = self.started, 0
        return (self.us,) * taken

    def heat_up(self, stream: object) -> list[float]:
        return [self.us]

    def destroy(self) -> None: ...


@dataclass
class Outputs:
    """Outputs of which those of `changed` places differ."""

    changed: dict[int, Difference] = field(default_factory=dict)

    def poison(self, turn: int = 0) -> None: ...
    def compare(self, verified: int, slot: int = 0) -> None: ...
    def differences(self) -> dict[int, Difference]:
        found, self.changed = self.changed, {}
        return found


@contextmanager
def metered() -> Iterator[Any]:
    yield SimpleNamespace(watts=700.0)


def telling(*watts: float | None, then: float | None = None) -> Callable[[], AbstractContextManager[Any]]:
    """A monitor's `metered` whose blocks took these watts, one after the other, and those beyond them `then`."""
    told = iter(watts)

    @contextmanager
    def block() -> Iterator[Any]:
        yield SimpleNamespace(watts=next(told, then))

    return block


@dataclass
class Bench:
    """Takes the GPU's place: `library_us` by rank, of which the last `beyond` are not listed, `own_us` by tile_n."""

    library_us: list[float] = field(default_factory=list)
    own_us: dict[int, float] = field(default_factory=dict)
    outputs: Outputs = field(default_factory=Outputs)
    may_reach_power_limit: bool = True
    power_decides: bool = False
    stream: object = None
    busy_us: float = 0.0
    restored: int = 0
    discarded: int = 0
    beyond: int = 0
    monitor: Any = field(default_factory=lambda: SimpleNamespace(read=lambda: CLOCKS, metered=metered))

    @property
    def baselines(self) -> tuple[Config, ...]:
        listed = len(self.library_us) - self.beyond
        return tuple(family_named("cublaslt").config({"rank": rank}) for rank in range(listed))

    def ready(self, config: Config, digest: str) -> Any:  # noqa: ANN401
        us = self.library_us[config.number("rank")] if config.family == "cublaslt" else self.own_us[config["tile_n"]]
        if us == REFUSED:
            raise driver.CudaError("cublasLtMatmul", "CUDA_ERROR_NOT_SUPPORTED")
        return SimpleNamespace(config=config, timed=Timed(us), discard=self.discard)

    def chained(self, ready: Any, *, early: bool) -> Timed:  # noqa: ANN401
        return Timed(ready.timed.us + (0.5 if early else 1.0))

    def discard(self) -> None:
        self.discarded += 1

    def verify(self, ready: Any) -> Any:  # noqa: ANN401
        if ready.timed.us == REFUSED_LATER:
            raise driver.CudaError("cublasLtMatmul", "CUDA_ERROR_NOT_SUPPORTED")
        return SimpleNamespace(reason="wrong" if ready.timed.us == WRONG else "", digest=1, once_us=ready.timed.us)

    def restore(self) -> None:
        self.restored += 1

    def measured(self, ready: Any, stage: str, policy: Policy, samples: Any, *rest: Any) -> Any:  # noqa: ANN401
        return SimpleNamespace(
            config=ready.config, policy=policy, outcome=Outcome.CORRECT, samples_us=samples, median_us=samples[0],
            product_joules=rest[-1],
        )  # fmt: skip

    def outcome(self, ready: Any, outcome: Outcome, detail: str, *rest: Any) -> Any:  # noqa: ANN401
        return SimpleNamespace(config=ready.config, policy=rest[-1], outcome=outcome, detail=detail)

    def failure(self, config: Config, digest: str, outcome: Outcome, detail: str, *, stage: str) -> Any:  # noqa: ANN401
        return SimpleNamespace(config=config, stage=stage, policy=Policy.BURST, outcome=outcome, detail=detail)


def own(tile_n: int, pdl: int = 0) -> Config:
    return FAMILY.config({"tile_n": tile_n, "pdl": pdl})


def ran(bench: Bench, configs: list[Config], turns: int = 5) -> list[Measurement]:
    made = finals.Finals(bench)  # type: ignore[arg-type]
    for config in configs:
        assert made.add(config, "") == ""
    made.add_baselines()
    return made.run(turns)
