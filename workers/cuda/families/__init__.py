"""Launchers by family: what turns a cubin and a config into something that runs once on a copy of operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from space.config import Config
from space.kinds.gemm import Gemm
from workers.cuda.driver import Stream
from workers.cuda.families.arguments import GemmArguments
from workers.cuda.families.gemv import Gemv
from workers.cuda.families.prepared import Passes, derived_of
from workers.cuda.families.shared import Place, Shared
from workers.cuda.families.sm90_wgmma import WgmmaLauncher
from workers.cuda.operands import Copy


class Launcher(Protocol):
    """One candidate, loaded."""

    def launch(self, stream: Stream, copy: Copy) -> None:
        """Runs it once, with every pass that it needs."""

    def unload(self) -> None:
        """Frees the program."""


class Movable(Launcher, Protocol):
    """One candidate of ours, whose prepared arguments can be pointed at other operands: see `PreparedLauncher`."""

    def prepare(self, copy: Copy) -> Passes: ...

    def places(self, passes: Passes) -> dict[str, Place]: ...

    def epilogue(self, passes: Passes) -> GemmArguments: ...

    @property
    def alignment_bytes(self) -> dict[str, int]:
        """What addresses of `a`, `b` and `c` must be multiples of; those not named, of an element."""


LAUNCHERS: Final[dict[str, Callable[[Gemm, Config, bytes, int, Shared], Movable]]] = {
    "sm90_wgmma": WgmmaLauncher, "gemv": Gemv,
}  # fmt: skip


def foresee(problem: Gemm, config: Config) -> None:
    """Does ahead what `load` needs no GPU for."""
    if config.family in LAUNCHERS:
        derived_of(problem, config)


def load(problem: Gemm, config: Config, cubin: bytes, sm_count: int, shared: Shared) -> Movable:
    """The launcher of a candidate's family, with its program loaded.

    Raises:
        CudaError: the driver refuses the program or its launch parameters.
    """
    return LAUNCHERS[config.family](problem, config, cubin, sm_count, shared)
