"""Streams: a lock that orders each stream's launches, and the scratch memory that its calls share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor

#: Size of one reserve, and how many of them a device has at most.
RESERVE_BYTES: Final = 4 << 20
MOST_RESERVES: Final = 16
#: Alignment of each part of scratch memory, the same as that of torch's allocations.
_ALIGN_BYTES: Final = 512
_LOCK: Final = threading.Lock()
#: Allocates scratch memory when it grows, which is rare.
_ELSEWHERE: Final = ThreadPoolExecutor(1, "gemmtune-memory")


@dataclass
class Queue:
    """One stream of one device. Its calls run one after another, so they can share scratch memory.

    Attributes:
        stream: for launches (`workers.cuda.driver.Stream`).
        lock: held while a call writes its arguments and launches its passes. Another call's pass in between would
            overwrite the data that they share.
        grown: how often the scratch memory moved; 0 before the first allocation.
    """

    device: int
    stream: Any
    lock: threading.Lock = field(default_factory=threading.Lock)
    grown: int = 0
    _passing: Tensor | None = None
    _zeros: Tensor | None = None

    def scratch(self, passing_bytes: int, zeroed_bytes: int) -> tuple[Tensor, Tensor]:
        """Scratch memory for data between a call's passes, and zeros for its counters.

        Each tensor has at least the requested size and stays the same until a call needs more. The stream must be
        current and must not be capturing.
        """
        if self._passing is None or self._passing.numel() < passing_bytes:
            self._passing = self._kept(passing_bytes)
            self.grown += 1
        if self._zeros is None or self._zeros.numel() < zeroed_bytes:
            self._zeros = self._kept(zeroed_bytes).zero_()
            self.grown += 1
        return self._passing, self._zeros

    def forget(self) -> None:
        """Gives the scratch memory back; the next call gets new, with new zeros."""
        self._passing = self._zeros = None
        self.grown += 1

    def _kept(self, size_bytes: int) -> Tensor:
        stream = torch.cuda.current_stream(self.device)
        return elsewhere(_allocated_on, stream, max(size_bytes, 1), self.device)


@dataclass
class Reserve:
    """Zeros of one device for the counters of captured calls.

    Each call has its own and leaves them zero, so that no replay has to zero them: a node costs a microsecond. Graphs
    don't say when they end, so nothing comes back, and there is a limit; beyond it, graphs zero memory of their own.
    """

    device: int
    _zeros: Tensor | None = None
    _used: int = 0
    _kept: list[Tensor] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def refill(self) -> None:
        """Makes room for the calls of a capture; the current stream must not be capturing."""
        with self._lock:
            enough = self._zeros is not None and self._used <= RESERVE_BYTES // 2
            if not enough and len(self._kept) < MOST_RESERVES:
                self._zeros, self._used = elsewhere(_made_zeros, self.device), 0
                self._kept.append(self._zeros)

    def take(self, size_bytes: int) -> Tensor | None:
        """Zeros that nobody else has; None where there are too few."""
        with self._lock:
            begin, self._used = self._used, self._used + _up(size_bytes)
            if self._zeros is None or self._used > RESERVE_BYTES:
                self._used = begin
                return None
            return self._zeros[begin : begin + size_bytes]


def room(parts: Mapping[str, int]) -> int:
    """Bytes of scratch memory that has all parts, by name."""
    return sum(map(_up, parts.values()))


def places(parts: Mapping[str, int], memory: Tensor) -> dict[str, int]:
    """Address of each part; the parts are contiguous, each aligned."""
    found, address = {}, memory.data_ptr()
    for name, size in parts.items():
        found[name] = address
        address += _up(size)
    return found


def _up(size_bytes: int) -> int:
    return -(-size_bytes // _ALIGN_BYTES) * _ALIGN_BYTES


_ONES: Final[dict[int, Tensor]] = {}
_RESERVES: Final[dict[int, Reserve]] = {}
_QUEUES: Final[dict[tuple[int, int], Queue]] = {}


def queue(device: int, handle: int) -> Queue:
    """The queue of a stream handle; 0 is the device's default stream."""
    from workers.cuda.driver import Borrowed

    with _LOCK:
        found = _QUEUES.get((device, handle))
        if found is None:
            found = _QUEUES[device, handle] = Queue(device, Borrowed(handle))
        return found


def reserve(device: int) -> Reserve:
    return _RESERVES.setdefault(device, Reserve(device))


def allocated(size_bytes: int, device: int) -> Tensor:
    """Bytes on the current stream."""
    return torch.empty(size_bytes, dtype=torch.uint8, device=_device(device))


def one(device: torch.device) -> Tensor:
    """1.0 in f32 on a device, a scalar that all streams may read at once."""
    index = device.index or 0
    if torch.cuda.is_current_stream_capturing():
        # The graph makes its own: nothing may be made elsewhere meanwhile.
        return torch.ones((), dtype=torch.float32, device=device)
    if index not in _ONES:
        _ONES[index] = elsewhere(_made_one, index)
    return _ONES[index]


def elsewhere(make: Callable[..., Tensor], *given: object) -> Tensor:
    """What another thread makes, even while this one or a third captures a graph.

    A memory pool that is active on this thread, as while a graph warms up, expects all its memory back.
    """

    def made() -> Tensor:
        with unhindered():
            return make(*given)

    try:
        making = _ELSEWHERE.submit(made)
    except RuntimeError:  # the main thread has ended, and Python begins nothing more for others, which still compute
        return made()
    return making.result()


@contextmanager
def unhindered() -> Iterator[None]:
    """Lets this thread allocate and wait while another one captures a graph, and does that capture no harm.

    A capture in the mode `global`, torch's default, ends with an error as soon as any thread in that mode does either
    (CUDA Driver API, cuThreadExchangeStreamCaptureMode).
    """
    if not (torch.version.cuda and torch.cuda.is_available()):
        yield  # a torch for other makers' GPUs has captures of its own
        return
    from cuda.bindings import driver as cu

    mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    _, before = cu.cuThreadExchangeStreamCaptureMode(mode)
    try:
        yield
    finally:
        cu.cuThreadExchangeStreamCaptureMode(before)


def _made_zeros(device: int) -> Tensor:
    made = torch.zeros(RESERVE_BYTES, dtype=torch.uint8, device=_device(device))
    torch.cuda.current_stream(device).synchronize()
    return made


def _made_one(device: int) -> Tensor:
    made = torch.ones((), dtype=torch.float32, device=_device(device))
    torch.cuda.current_stream(device).synchronize()
    return made


def _allocated_on(stream: torch.cuda.Stream, size_bytes: int, device: int) -> Tensor:
    """Bytes on `stream`: only earlier work of that stream can have used this memory before."""
    with torch.cuda.stream(stream):
        return allocated(size_bytes, device)


@cache
def _device(index: int) -> torch.device:
    return torch.device("cuda", index)
