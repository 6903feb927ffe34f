"""Ports: how the tuner reaches a device that measures: a GPU of this machine, or a recording."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Protocol, Self

from space.config import Config
from space.problem import Problem
from workers.measurement import DeviceFacts, Measurement, Policy, Provenance

#: Returns further candidates for a running screening; none where there are none for now.
More = Callable[[], Sequence[Config]]


def no_more() -> Sequence[Config]:
    """No further candidates."""
    return ()


class Round(Protocol):
    """One problem on one device: operands and reference are prepared once, then candidates are measured."""

    @property
    def provenance(self) -> Provenance:
        """What every measurement of this round depends on."""
        ...

    @property
    def baselines(self) -> tuple[Config, ...]:
        """Candidates of other people's libraries that can be screened, the first choice of each library first."""
        ...

    def screen(self, candidates: Sequence[Config], more: More = no_more) -> Iterator[Measurement]:
        """Builds, verifies and briefly times each candidate; one measurement each, in any order.

        A candidate that fails to compile, hangs, crashes or is wrong is a measurement with that outcome.

        Args:
            more: called while the next measurement is taken, when a compiler is idle and so few candidates are
                built that the device would soon wait; what it returns is screened too.
        """
        ...

    def finals(self, finalists: Sequence[Config], turns: int) -> tuple[Measurement, ...]:
        """Measures the finalists and the libraries' first choice and best candidate in turn.

        Args:
            turns: fewest turns that count; more are taken where the leaders are too close to tell apart.

        Returns:
            One `final` measurement each. Those of family `cublaslt` come last: its first choice
            (`rank=0`), then the best of its candidates where that is another one. None of that family
            where the library is not installed. Sample i of every measurement is from turn i.
        """
        ...


class Worker(Protocol):
    """Measures candidates on one device."""

    @property
    def facts(self) -> DeviceFacts:
        """The device."""
        ...

    def measurable(self, problem: Problem) -> frozenset[str] | None:
        """Keys of the configs that this worker can measure; None for any legal one.

        A recorded device can only replay what was recorded; empty means it knows nothing of the problem.
        """
        ...

    def begin(self, problem: Problem, policy: Policy) -> Round:
        """Prepares operands and the reference.

        Raises:
            WorkerError: the device can't be used for this problem, with the reason and the fix.
        """
        ...

    def close(self) -> None:
        """Ends the worker and whatever it started."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
