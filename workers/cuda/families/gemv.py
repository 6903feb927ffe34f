"""Launcher of `gemv`: grid and arguments. Knows nothing of timing or verification."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import cached_property
from typing import Final

from space.config import Config
from space.devices import DeviceProfile
from space.families.gemv.derive import row_bytes, transposed_a
from space.kinds.gemm import Gemm
from workers.cuda.copies import Copy
from workers.cuda.driver import Arguments, Launch
from workers.cuda.families.arguments import EVICT_FIRST, EVICT_NORMAL, Divider, GemmArguments, epilogue_places
from workers.cuda.families.prepared import Passes, PreparedLauncher, split_workspace
from workers.cuda.families.shared import Place, Shared, word

ENTRY: Final = "gemv"
_HINTS: Final = {"none": EVICT_NORMAL, "evict_first": EVICT_FIRST}


class GemvArguments(GemmArguments):
    """Mirrors `GemvArguments` of gemv/arguments.cuh."""

    _fields_ = (
        ("tiles", ctypes.c_int), ("pieces", ctypes.c_int), ("a_pitch", ctypes.c_int), ("transposed", ctypes.c_int),
        ("splits", Divider), ("product", Divider), ("slice", Divider), ("prefetch_steps", ctypes.c_int),
        ("a", ctypes.c_void_p), ("b", ctypes.c_void_p), ("row_bytes", ctypes.c_longlong),
        ("batch_bytes_a", ctypes.c_longlong), ("batch_bytes_b", ctypes.c_longlong),
    )  # fmt: skip


def tiles_of(problem: Gemm, config: Config, derived: Mapping[str, int]) -> int:
    """Tiles of all slices and products."""
    return derived["tiles_n"] * config.number("split_k") * problem.batch


def arguments_of(
    problem: Gemm, config: Config, derived: Mapping[str, int], copy: Copy, partials: int = 0, semaphores: int = 0
) -> GemvArguments:
    """The arguments of a launch over one copy.

    Args:
        partials, semaphores: addresses of split-K's partial sums and semaphores; 0 without split-K.
    """
    p, split, row = problem, config.number("split_k"), row_bytes(problem)
    across = derived["tiles_n"]
    return GemvArguments(
        copy.c, copy.source or None, copy.bias or None, partials or None, semaphores or None, EVICT_NORMAL,
        _HINTS[str(config["cache_hint"])], p.n, p.m * p.n, p.m, p.n, copy.alpha, copy.beta,
        tiles_of(p, config, derived), derived["pieces"], derived["staged_pitch_bytes"], int(transposed_a(p)),
        Divider.of(split), Divider.of(across * split), Divider.of(across), config.number("prefetch_steps"),
        copy.a, copy.b, row, p.m * row, p.n * row,
    )  # fmt: skip


class GemvLauncher(PreparedLauncher):
    """A single pass."""

    def __init__(self, problem: Gemm, config: Config, cubin: bytes, device: DeviceProfile, shared: Shared) -> None:
        super().__init__(problem, config, cubin, device, shared)
        derived = self._derived
        self._launch = Launch(
            self._module.function(ENTRY), derived["threads"], derived["shared_memory_bytes"],
            pdl=config.number("pdl") == 1,
        )  # fmt: skip
        tiles = tiles_of(problem, config, derived)
        walking = min(tiles, config.number("blocks_per_sm") * device.sm_count)
        self._launch.set_grid(walking if config.number("persistent") else tiles)
        whole = derived["tiles_n"] * problem.batch
        split = config.number("split_k")
        self._partials = self._semaphores = 0
        if split > 1:
            self._partials, self._semaphores = split_workspace(shared, whole * split * derived["outputs"], whole)

    def prepare(self, copy: Copy) -> Passes:
        """The arguments of one copy."""
        made = self._of_every_copy.over(copy)
        made.a, made.b = copy.a, copy.b
        return ((self._launch, Arguments(made)),)

    @cached_property
    def _of_every_copy(self) -> GemvArguments:
        """The arguments without addresses: a problem of tiny operands has a hundred copies."""
        return arguments_of(self._problem, self._config, self._derived, Copy(0, 0, 0), self._partials, self._semaphores)

    def places(self, passes: Passes) -> dict[str, Place]:
        ((_, arguments),) = passes
        (read,) = arguments.values
        return epilogue_places(read) | {name: Place(words=[word(read, name)]) for name in "ab"}

    @property
    def alignment_bytes(self) -> dict[str, int]:
        """Loads of A and B are this wide; C is stored by elements."""
        return dict.fromkeys("ab", self._config.number("load_bytes"))


LAUNCHER: Final = GemvLauncher
