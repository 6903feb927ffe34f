"""Launchers by family: what turns a cubin and a config into something that runs once on a copy of operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

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


LAUNCHERS: Final[dict[str, Callable[[Problem, Config, bytes, int, Shared], Launcher]]] = {
    "sm90_wgmma": Gemm, "gemv": Gemv,
}  # fmt: skip


def load(problem: Problem, config: Config, cubin: bytes, sm_count: int, shared: Shared) -> Launcher:
    """The launcher of a candidate's family, with its program loaded.

    Raises:
        CudaError: the driver refuses the program or its launch parameters.
    """
    return LAUNCHERS[config.family](problem, config, cubin, sm_count, shared)
