"""Launcher of `toy_simt`: one block a tile."""

from __future__ import annotations

import ctypes
from typing import Final

from space.config import Config
from space.devices import DeviceProfile
from space.kinds.gemm import Gemm
from workers.cuda.copies import Copy
from workers.cuda.driver import Arguments, Launch
from workers.cuda.families.arguments import EVICT_NORMAL, GemmArguments, epilogue_places
from workers.cuda.families.prepared import Passes, PreparedLauncher
from workers.cuda.families.shared import Place, Shared, word


class ToyArguments(GemmArguments):
    """Mirrors `ToyArguments` of toy_simt/kernel.cuh."""

    _fields_ = (("a", ctypes.c_void_p), ("b", ctypes.c_void_p), ("k", ctypes.c_int))


def arguments_of(p: Gemm, copy: Copy) -> ToyArguments:
    """The arguments of a launch over one copy."""
    return ToyArguments(
        copy.c, copy.source or None, copy.bias or None, None, None, EVICT_NORMAL, EVICT_NORMAL, p.n, p.m * p.n,
        p.m, p.n, copy.alpha, copy.beta, copy.a, copy.b, p.k,
    )  # fmt: skip


class ToyLauncher(PreparedLauncher):
    """A single pass."""

    def __init__(self, problem: Gemm, config: Config, cubin: bytes, device: DeviceProfile, shared: Shared) -> None:
        super().__init__(problem, config, cubin, device, shared)
        threads, smem = self._derived["threads"], self._derived["shared_memory_bytes"]
        self._launch = Launch(self._module.function("toy_simt"), threads, smem)
        self._launch.set_grid(self._derived["tiles"])

    def prepare(self, copy: Copy) -> Passes:
        """The arguments of one copy."""
        return ((self._launch, Arguments(arguments_of(self._problem, copy))),)

    def places(self, passes: Passes) -> dict[str, Place]:
        """Places of all addresses."""
        (read,) = passes[0][1].values
        return epilogue_places(read) | {name: Place(words=[word(read, name)]) for name in "ab"}


LAUNCHER: Final = ToyLauncher
