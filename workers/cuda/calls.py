"""Calls: one config of one problem, loaded once and launched wherever its operands lie, on any stream.

The launch path of measurements without the measuring: what an application's own streams and memory are used with.
Nothing here waits for the device, allocates on it, or copies to it, so that streams may be captured into graphs.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from space.config import Config
from space.problem import DTYPE_BYTES, Problem
from workers.cuda.driver import Stream
from workers.cuda.families import load
from workers.cuda.families.shared import Box, Shared, TensorMap
from workers.cuda.operands import Copy

#: Descriptors lie at multiples of this (CUDA driver API, cuTensorMapReplaceAddress: tensorMap).
MAP_ALIGN_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class Scratch:
    """Device memory that a call needs beside its operands.

    Attributes:
        zeroed: all bytes are 0 before the first call; every call leaves them so. Two calls that may run at the same
            time must not share it.
    """

    size_bytes: int
    zeroed: bool


class Call:
    """See the module. Usable from several threads; the context of the device must be current where it is used.

    Args:
        anywhere: address of device memory, a multiple of 16: what descriptors are encoded for before the first call.

    Attributes:
        scratch: by name, what every call must bring.
        alignment_bytes: by operand (`a`, `b`, `c`, `source`, `bias`), what addresses must be multiples of.

    Raises:
        CudaError: the driver refuses the program or its launch parameters.
    """

    def __init__(self, problem: Problem, config: Config, cubin: bytes, sm_count: int, anywhere: int) -> None:
        wanted = _Wanted(anywhere)
        self._launcher = load(problem, config, cubin, sm_count, wanted)
        self.scratch = wanted.found
        size, size_c = DTYPE_BYTES[problem.dtype_a], DTYPE_BYTES[problem.dtype_c]
        self.alignment_bytes = {
            "a": size, "b": size, "c": size_c, "source": size_c, "bias": DTYPE_BYTES[problem.dtype_bias],
        } | self._launcher.alignment_bytes  # fmt: skip
        # Descriptors are encoded once, here; each call changes the addresses in them alone.
        self._prepared = self._launcher.prepare(Copy(anywhere, anywhere, anywhere, 0, 0, 1.0, 0.0))
        self._at: tuple[Copy, Mapping[str, int]] | None = None
        self._lock = threading.Lock()

    def __call__(self, stream: Stream, at: Copy, scratch: Mapping[str, int]) -> None:
        """Puts the kernel, and the pass before it where there is one, on the stream.

        Raises:
            CudaError: the driver refuses the launch.
        """
        # Arguments are copied by the launch: between pointing them and that nobody else may.
        with self._lock:
            if self._at != (at, scratch):
                self._launcher.repoint(self._prepared, at, scratch)
                self._at = at, scratch
            self._launcher.run(stream, self._prepared)

    def unload(self) -> None:
        """Frees the program; no call may be running."""
        self._launcher.unload()


class _Wanted(Shared):
    """Takes note of the scratch memory that is asked for; descriptors are never shared."""

    def __init__(self, anywhere: int) -> None:
        super().__init__()
        self._anywhere = anywhere
        self.found: dict[str, Scratch] = {}

    def scratch(self, name: str, size_bytes: int, *, zeroed: bool = False) -> int:
        """Nothing yet: every call brings its own."""
        self.found[name] = Scratch(size_bytes, zeroed)
        return self._anywhere

    def map(self, box: Box) -> TensorMap:
        """A descriptor of one's own."""
        room = ctypes.create_string_buffer(128 + MAP_ALIGN_BYTES)
        aligned = -ctypes.addressof(room) % MAP_ALIGN_BYTES
        made = (ctypes.c_char * 128).from_buffer(room, aligned)
        ctypes.memmove(made, box.encode(), 128)
        return made
