"""PreparedLauncher: the base of our own families' launchers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from typing import ClassVar, cast

from space.config import Config
from space.devices import DeviceProfile
from space.families.common import SEMAPHORE_BYTES
from space.family import family_named
from space.problem import OwnProblem
from workers.cuda.copies import Copy
from workers.cuda.driver import Arguments, Launch, Module, Stream
from workers.cuda.families.arguments import GemmArguments
from workers.cuda.families.launcher import Launcher
from workers.cuda.families.shared import Place, Shared

#: Everything that one run launches, in order.
Passes = tuple[tuple[Launch, Arguments], ...]


class PreparedLauncher(Launcher):
    """A launcher with a loaded program, whose arguments are prepared once per copy.

    Attributes:
        strided: whether it takes operands whose lines are apart, where it packs none.
    """

    strided: ClassVar[bool] = False

    def __init__(
        self, problem: OwnProblem, config: Config, cubin: bytes, device: DeviceProfile, shared: Shared
    ) -> None:
        self._problem, self._config, self._shared = problem, config, shared
        self._derived = derived_of(problem, config, device)
        self._module = shared.loaded(cubin, Module)
        self._prepared: dict[int, Passes] = {}

    @abstractmethod
    def prepare(self, copy: Copy) -> Passes:
        """The passes over one copy."""

    @abstractmethod
    def places(self, passes: Passes) -> dict[str, Place]:
        """Places of the addresses in prepared arguments, whose descriptors must not be shared.

        Returns: those of `a`, `b`, `c`, `source`, `bias`, and of all scratch memory that the constructor asked
            `Shared` for, by name.
        """

    @staticmethod
    def epilogue(passes: Passes) -> GemmArguments:
        """The prepared arguments that hold alpha and beta: the kernel's last, in the last pass."""
        return cast("GemmArguments", passes[-1][1].values[-1])

    def launch(self, stream: Stream, copy: Copy) -> None:
        """Runs it once, and prepares its arguments on the first run over a copy."""
        if copy.c not in self._prepared:
            self._prepared[copy.c] = self.prepare(copy)
        for launch, arguments in self._prepared[copy.c]:
            launch(stream, arguments)

    def unload(self) -> None:
        """Frees the program."""
        self._module.unload()

    @classmethod
    def foresee(cls, problem: OwnProblem, config: Config, device: DeviceProfile) -> None:
        """Computes the derived values."""
        derived_of(problem, config, device)

    @property
    def alignment_bytes(self) -> dict[str, int]:
        """What addresses of operands must be multiples of, by name; those not named, of an element."""
        return {}


@lru_cache(maxsize=8)
def derived_of(problem: OwnProblem, config: Config, device: DeviceProfile) -> Mapping[str, int]:
    """All derived values of a candidate; cached, so that they can be computed ahead."""
    return family_named(config.family).derive(problem, config, device)


def split_workspace(shared: Shared, sums: int, parts: int) -> tuple[int, int]:
    """Addresses of the partial sums and of the semaphores of tiles whose K is cut.

    Semaphores are zero now, and every launch leaves them zero.

    Args:
        sums: partial sums of four bytes each, over all pieces.
        parts: of tiles, each with a semaphore of its own.
    """
    return shared.scratch("partials", sums * 4), shared.scratch("semaphores", parts * SEMAPHORE_BYTES, zeroed=True)
