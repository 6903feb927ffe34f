"""Ports: how the tuner reaches a device that measures: a GPU of this machine, or a recording."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Protocol, Self

from space.config import Config
from space.problem import Problem
from workers.measurement import DeviceFacts, Measurement, Policy, Program, Provenance

#: Returns further candidates for a running screening; none where there are none for now.
More = Callable[[], Sequence[Config]]


def no_more() -> Sequence[Config]:
    """No further candidates."""
    return ()


class Round(Protocol):
    """One problem on one device: operands and reference are prepared once, then candidates are measured."""

    @property
    def policy(self) -> Policy:
        """The policy of its screenings."""
        ...

    @property
    def provenance(self) -> Provenance:
        """The provenance of every measurement of this round."""
        ...

    @property
    def baselines(self) -> tuple[Config, ...]:
        """Candidates of third-party libraries that can be screened, the first choice of each library first."""
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
        """Measures the finalists and the libraries' candidates under every policy that applies.

        A finalist that uses programmatic dependent launch is measured under `chain_pdl` alone.

        Args:
            finalists: most promising first; measurements keep the order.
            turns: fewest turns of `chain` where it decides what is served; more are taken where the leaders are too
                close to tell apart. `rounds`, and `chain` elsewhere, take a third.

        Returns:
            One `final` measurement per rival and policy, by policy. Under `burst` all rivals are measured; under the
            others those that lead by it, with each library's first choice and best. Within a policy a library's
            candidates come last, its first choice first; there is none where the library is not installed. What failed
            before it was timed has one measurement. Sample i of every measurement of a policy is from turn i; rivals
            that fall behind end earlier.
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

        A recorded device can only replay what was recorded; empty means that it does not have the problem.
        """
        ...

    def program(self, problem: Problem) -> Program:
        """The program that would run: the kernels of the competing families, and the installed versions.

        Raises:
            WorkerError: the device knows nothing of the problem.
        """
        ...

    def begin(self, problem: Problem) -> Round:
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
