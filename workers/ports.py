"""Ports: how the tuner reaches whatever measures, be it a GPU here, a recording, or later a node far away."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Protocol, Self

from space.config import Config
from space.problem import Problem
from workers.measurement import DeviceFacts, Measurement, Policy, Provenance

#: Further candidates of a screening that is under way; none when there are none for now.
More = Callable[[], Sequence[Config]]


def no_more() -> Sequence[Config]:
    """A screening of what was given, and nothing else."""
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
        """Each candidate built, verified, then timed briefly; one measurement each, in any order.

        A candidate that fails to compile, hangs, crashes or lies is a measurement with that outcome.

        Args:
            more: may be asked, by whoever takes the next measurement, when so few candidates are built that the
                device would soon wait, and a compiler has nothing to do; what it gives is screened too.
        """
        ...

    def finals(self, finalists: Sequence[Config], rounds: int) -> tuple[Measurement, ...]:
        """The finalists, cuBLASLt's first choice and cuBLASLt's best candidate in interleaved rounds.

        Args:
            rounds: at least so many that count; more where the leaders are still too close to tell apart.

        Returns:
            One `final` measurement each. Those of family `cublaslt` come last: its first choice
            (`rank=0`), then the best of its candidates where that is another one. None of that family
            where the library is not installed. Sample i of every measurement is from round i.
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
