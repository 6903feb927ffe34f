"""Runtime: a problem kind's plug for the GPU process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from space.problem import OwnProblem
from workers.cuda.copies import OwnCopy
from workers.cuda.toolbox import Toolbox


class Reference(ABC):
    """Expected values in float64 and bounds in f32 for every element of a problem's output, on the GPU.

    Attributes:
        method: how they are computed, kept with each verification.
        elements: of the output.
    """

    method: ClassVar[str]
    elements: int

    @property
    @abstractmethod
    def values(self) -> int:
        """Address of the expected values, float64, in the order of the output."""

    @property
    @abstractmethod
    def bounds(self) -> int:
        """Address of the bounds, f32, in the order of the output."""

    @abstractmethod
    def compute(self, copy: OwnCopy) -> None:
        """Computes values and bounds from the operands of one copy."""

    @abstractmethod
    def free(self) -> None:
        """Gives memory back."""


class Runtime(ABC):
    """How a GPU process handles the problems of one kind; the operands themselves are `Problem.operands`."""

    @abstractmethod
    def copy(self, problem: OwnProblem, addresses: Mapping[str, int], seed: int) -> OwnCopy:
        """One set of operands as launchers of the kind take it; hashable.

        Args:
            addresses: of each operand, by name.
            seed: what scalars of the product are drawn from.
        """

    @abstractmethod
    def reference(self, problem: OwnProblem, tools: Toolbox, exact_sums: bool = False) -> Reference:
        """The reference of a problem, not computed yet.

        Args:
            exact_sums: the operands' sums need no rounding.
        """

    @abstractmethod
    def probes(self, problem: OwnProblem) -> bool:
        """Whether the bounds alone would hide a fault, so that operands with exact sums are verified too."""

    @abstractmethod
    def place(self, problem: OwnProblem, element: int) -> str:
        """Where an element of the output lies, in words: `row 3, column 7`."""
