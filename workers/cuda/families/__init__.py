"""Launchers by family: what turns a cubin and a config into something that runs once on a copy of operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from space.config import Config
from space.problem import Problem
from workers.cuda.driver import Stream
from workers.cuda.families.gemv import Gemv
from workers.cuda.families.shared import Shared
from workers.cuda.families.sm90_wgmma import Gemm
from workers.cuda.operands import Copy


class Launcher(Protocol):
    """One candidate, loaded."""

    def launch(self, stream: Stream, copy: Copy) -> None:
        """Runs it once, with every pass that it needs."""

    def unload(self) -> None:
        """Frees the program."""


class Movable(Launcher, Protocol):
    """One candidate of ours, whose prepared arguments can be pointed at other operands."""

    def prepare(self, copy: Copy) -> Any:  # noqa: ANN401  (each family's own)
        """The arguments of every pass over one copy."""

    def run(self, stream: Stream, prepared: Any) -> None:  # noqa: ANN401
        """Runs it once with what `prepare` gave."""

    def repoint(self, prepared: Any, at: Copy, scratch: Mapping[str, int]) -> None:  # noqa: ANN401
        """Makes arguments of one copy those of other operands.

        Args:
            scratch: addresses of what the constructor asked `Shared` for, by name.
        """

    @property
    def alignment_bytes(self) -> dict[str, int]:
        """What addresses of `a`, `b` and `c` must be multiples of; those not named, of an element."""


LAUNCHERS: Final[dict[str, Callable[[Problem, Config, bytes, int, Shared], Movable]]] = {
    "sm90_wgmma": Gemm, "gemv": Gemv,
}  # fmt: skip


def load(problem: Problem, config: Config, cubin: bytes, sm_count: int, shared: Shared) -> Movable:
    """The launcher of a candidate's family, with its program loaded.

    Raises:
        CudaError: the driver refuses the program or its launch parameters.
    """
    return LAUNCHERS[config.family](problem, config, cubin, sm_count, shared)
