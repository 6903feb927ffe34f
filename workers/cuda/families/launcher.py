"""Launcher: a family's plug for the GPU process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from space.config import Config
from space.devices import DeviceProfile
from space.problem import OwnProblem
from workers.cuda.copies import OwnCopy
from workers.cuda.driver import Stream
from workers.cuda.families.shared import Shared


@dataclass(frozen=True, slots=True)
class Library:
    """A third-party library that a family launches.

    Attributes:
        version: empty where it can't be used.
        missing: why it can't be used; empty where it can.
    """

    version: str = ""
    missing: str = ""


class Launcher(ABC):
    """One candidate, loaded on the GPU. A family's launcher module exports its subclass as `LAUNCHER`.

    Attributes:
        note: what the candidate says of itself, kept with its measurement.
    """

    note: str = ""

    @abstractmethod
    def __init__(
        self, problem: OwnProblem, config: Config, cubin: bytes, device: DeviceProfile, shared: Shared
    ) -> None:
        """Loads it.

        Args:
            cubin: its program; empty where the family's kernels are not ours.
            device: the GPU.
            shared: what the candidates of the problem share.

        Raises:
            CudaError: the driver or the library refuses it.
        """

    @abstractmethod
    def launch(self, stream: Stream, copy: OwnCopy) -> None:
        """Runs it once, with every pass that it needs.

        Raises:
            CudaError: the driver or the library refuses.
        """

    @abstractmethod
    def unload(self) -> None:
        """Frees the program."""

    @classmethod  # noqa: B027
    def foresee(cls, problem: OwnProblem, config: Config, device: DeviceProfile) -> None:
        """Computes ahead the part of loading that needs no GPU."""

    @classmethod
    def library(cls) -> Library | None:
        """The library that the family needs, opened in this process; None where the kernels are ours.

        Raises:
            CudaError: the GPU can't be used.
        """
        return None

    @classmethod
    def candidates(cls, problem: OwnProblem, shared: Shared) -> tuple[Config, ...]:
        """Configs that only the library on this GPU can name, its first choice first; none where kernels are ours."""
        return ()

    @classmethod
    def unlisted(cls, problem: OwnProblem, shared: Shared, device: DeviceProfile) -> Iterator[Config]:
        """Configs that the library would run but doesn't name, the fastest expected first."""
        return iter(())
