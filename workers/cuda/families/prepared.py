"""What the launchers of our own families have in common: a loaded program, and arguments prepared once a copy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import lru_cache

from space.config import Config
from space.families.split_k import SEMAPHORE_BYTES
from space.kinds.gemm import Gemm
from space.registry import family_named
from workers.cuda.driver import Arguments, Launch, Module, Stream
from workers.cuda.families.arguments import GemmArguments
from workers.cuda.families.shared import Place, Shared
from workers.cuda.operands import Copy

#: All that one run launches, in order.
Passes = tuple[tuple[Launch, Arguments], ...]


class PreparedLauncher(ABC):
    """One candidate, loaded; `launch(stream, copy)` runs it once, with every pass that it needs."""

    def __init__(self, cubin: bytes) -> None:
        self._module = Module(cubin)
        self._prepared: dict[int, Passes] = {}

    @abstractmethod
    def prepare(self, copy: Copy) -> Passes:
        """The passes over one copy."""

    @abstractmethod
    def places(self, passes: Passes) -> dict[str, Place]:
        """Where addresses stand in prepared arguments whose descriptors are nobody else's.

        Returns: those of `a`, `b`, `c`, `source`, `bias`, and of what the constructor asked `Shared` for, by name.
        """

    @abstractmethod
    def epilogue(self, passes: Passes) -> GemmArguments:
        """The arguments among the prepared ones that say what C becomes."""

    def launch(self, stream: Stream, copy: Copy) -> None:
        """Prepares what was not prepared yet, and runs it once."""
        if copy.c not in self._prepared:
            self._prepared[copy.c] = self.prepare(copy)
        for launch, arguments in self._prepared[copy.c]:
            launch(stream, arguments)

    def unload(self) -> None:
        """Frees the program."""
        self._module.unload()


@lru_cache(maxsize=8)
def derived_of(problem: Gemm, config: Config) -> Mapping[str, int]:
    """All derived values of a candidate; kept, so that they can be computed while there is time."""
    return family_named(config.family).derive(problem, config)


def split_workspace(shared: Shared, sums: int, parts: int) -> tuple[int, int]:
    """Addresses of the partial sums and of the semaphores of tiles whose K is cut.

    Semaphores are zero now, and every launch leaves them zero.

    Args:
        sums: partial sums of four bytes each, over all pieces.
        parts: of tiles, each with a semaphore of its own.
    """
    return shared.scratch("partials", sums * 4), shared.scratch("semaphores", parts * SEMAPHORE_BYTES, zeroed=True)
