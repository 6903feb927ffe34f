"""Proofs: a config without a measurement for a problem computes it twice on random data before a user's call runs it.

Every element is compared with an f64 product of torch's, within the bound by which tuning verifies candidates. What
nobody measured must be faster than torch's operator too (`timings`). A kernel that hangs or leaves its memory
can still harm the process: only tuning runs candidates in a process of their own.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from types import MappingProxyType
from typing import Any, Final, Protocol

import torch
from torch import Tensor

from gemmtune.torch import streams, timings
from gemmtune.torch.expected import Expected
from gemmtune.torch.torchs import MEMORY_SECONDS, Passing
from space.config import Config
from space.kinds.gemm import Gemm
from workers.cuda.copies import Strides

#: Launches a, b, bias, source, alpha, beta into C; behind C the scales of A and B, where the problem has some.
Launch = Callable[..., object]


class Kernel(Protocol):
    """A config, loaded on a device."""

    @property
    def config(self) -> Config:
        """What is loaded."""

    @property
    def build(self) -> str:
        """Digest of its program; empty for the library's."""

    @property
    def device(self) -> int:
        """Where."""

    @property
    def strides(self) -> Mapping[str, Strides]:
        """Of operands whose lines are apart."""

    @property
    def unmeasured(self) -> bool:
        """Whether its config comes from another problem, or from a model."""

    @property
    def launch(self) -> Launch:
        """Launches it on the current stream."""


#: Verifies while torch computes.
BACKGROUND: Final = ThreadPoolExecutor(1, "gemmtune-verify")
# A program that ends waits for what runs, and Python would have it wait for all that is still to run.
getattr(threading, "_register_atexit", atexit.register)(BACKGROUND.shutdown, wait=False, cancel_futures=True)
#: Bytes in C before a launch: NaN in every float format, then another value, so that unwritten elements show.
_POISONS: Final = (0xFF, 0x5A)
#: Bytes before and after C that no launch may write.
_GUARD_BYTES: Final = 4096

#: Proofs that are remembered; the oldest are forgotten.
_MOST_FOUND: Final = 1 << 14

#: Config, program, device, whether it is unmeasured, problem, and how its operands lie.
_Name = tuple[str, str, int, bool, str, tuple[tuple[str, Strides], ...]]
_FOUND: Final[dict[_Name, str]] = {}
#: How often each was tried without a result.
_PASSED: Final[dict[_Name, int]] = {}
_LOCK: Final = threading.Lock()


def known(kernel: Kernel, problem: Gemm) -> str | None:
    """The earlier result of `disproof`; None without one."""
    return _FOUND.get(_name(kernel, problem))


def disproof(kernel: Kernel, problem: Gemm) -> str:
    """Why a kernel must not run on a problem; empty if it may: its results are right, and what nobody measured is
    faster than torch's operator. Remembered unless it is `Passing`, which lasts twice as long each time."""
    # Without the lock, which another kernel's proof may hold for seconds.
    said = known(kernel, problem)
    if said is None:
        with _LOCK:
            said = known(kernel, problem)
            if said is None:
                said, name = _tried(kernel, problem), _name(kernel, problem)
                times = _PASSED.pop(name, 0)
                if isinstance(said, Passing):
                    _keep(_PASSED, name, times + 1)
                    return said.after(times)
                _keep(_FOUND, name, said)
    return said


def _keep(among: dict[_Name, Any], name: _Name, value: object) -> None:
    among[name] = value
    while len(among) > _MOST_FOUND:
        del among[next(iter(among))]


def in_background(settle: Callable[[], None]) -> bool:
    """Has another thread settle something; False once the main thread has ended, while others still compute."""
    try:
        BACKGROUND.submit(settle)
    except RuntimeError:  # Python begins nothing more for them
        return False
    return True


def _name(kernel: Kernel, problem: Gemm) -> _Name:
    lies = tuple(sorted(kernel.strides.items(), key=str))
    return kernel.config.key, kernel.build, kernel.device, kernel.unmeasured, problem.key, lies


def _tried(kernel: Kernel, problem: Gemm) -> str:
    from workers.cuda.driver import CudaError

    stream, device, key = _stream(kernel.device), torch.device("cuda", kernel.device), kernel.config.key
    try:
        with torch.no_grad(), torch.cuda.device(device), streams.unhindered(), torch.cuda.stream(stream):
            try:
                wrong = difference(kernel.launch, problem, device, kernel.strides)
                stream.synchronize()
                if not wrong and kernel.unmeasured:
                    return timings.slower(key, kernel.launch, problem, device, kernel.strides)
            finally:
                # Counts that a wrong kernel leaves must not reach other calls.
                streams.queue(kernel.device, stream.cuda_stream).forget()
    except torch.OutOfMemoryError:
        again = f"it is tried again in {MEMORY_SECONDS:.0f} s, then after twice as long each time"
        return Passing(f"too little memory is free to verify {key}: {again}", MEMORY_SECONDS)
    except CudaError as error:
        return f"{key} can't be verified here: {error}"
    return wrong and f"{key} is wrong here: {wrong}"


def difference(
    launch: Launch, problem: Gemm, device: torch.device, strides: Mapping[str, Strides] = MappingProxyType({})
) -> str:
    """The difference between C of two launches on random data and the expected one; empty if there is none.

    Args:
        strides: of operands whose lines are apart.
    """
    expected = Expected(problem, device, strides)
    for poison in _POISONS:
        held, c = _poisoned(expected, poison)
        launch(*expected.arguments(c))
        if not bool((held[:_GUARD_BYTES] == poison).all() & (held[-_GUARD_BYTES:] == poison).all()):
            return "it writes beyond C"
        if wrong := expected.difference(c):
            return wrong
    return ""


def _poisoned(expected: Expected, poison: int) -> tuple[Tensor, Tensor]:
    """Memory full of `poison`, and C inside of it."""
    size_bytes = expected.elements * expected.dtype.itemsize
    held = torch.full((size_bytes + 2 * _GUARD_BYTES,), poison, dtype=torch.uint8, device=expected.device)
    return held, held[_GUARD_BYTES : _GUARD_BYTES + size_bytes].view(expected.dtype).view(expected.shape)


@cache
def _stream(device: int) -> torch.cuda.Stream:
    """The stream of a device on which kernels are verified."""
    return torch.cuda.Stream(device)
