"""What is kept for each stream: the order of its launches, and scratch memory that its calls share."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor

_LOCK: Final = threading.Lock()
#: Asked for memory where it grows, which is seldom.
_ELSEWHERE: Final = ThreadPoolExecutor(1, "gemmtune-memory")


@dataclass
class Queue:
    """One stream of one device. Calls on it run one after another, so that one's scratch memory serves the next.

    Attributes:
        stream: as launches take it (`workers.cuda.driver.Stream`).
        lock: held from where arguments are written until they are launched, so that the passes of a call follow one
            another: the next call's would overwrite what they hand on.
        grown: how often scratch memory moved; 0 where there is none.
    """

    device: int
    stream: Any
    lock: threading.Lock = field(default_factory=threading.Lock)
    grown: int = 0
    _passing: Tensor | None = None
    _zeros: Tensor | None = None

    def scratch(self, passing_bytes: int, zeroed_bytes: int) -> tuple[Tensor, Tensor]:
        """Memory for what a call hands to its next pass, and for counters that are zero between calls.

        At least as much as asked for, the same for every call until it grows. The stream must be the current one,
        and not be captured.
        """
        if self._passing is None or self._passing.numel() < passing_bytes:
            self._passing = self._kept(passing_bytes)
            self.grown += 1
        if self._zeros is None or self._zeros.numel() < zeroed_bytes:
            self._zeros = self._kept(zeroed_bytes).zero_()
            self.grown += 1
        return self._passing, self._zeros

    def _kept(self, size_bytes: int) -> Tensor:
        # Another thread asks for it: pools that this one allocates from, as of graphs that are being warmed up, count
        # on getting everything back.
        stream = torch.cuda.current_stream(self.device)
        return _ELSEWHERE.submit(_allocated_on, stream, max(size_bytes, 1), self.device).result()


_QUEUES: Final[dict[tuple[int, int], Queue]] = {}


def queue(device: int, handle: int) -> Queue:
    """That of a stream, by its handle, which for each device's default stream is 0."""
    from workers.cuda.driver import Borrowed

    with _LOCK:
        found = _QUEUES.get((device, handle))
        if found is None:
            found = _QUEUES[device, handle] = Queue(device, Borrowed(handle))
        return found


def allocated(size_bytes: int, device: int) -> Tensor:
    """Memory of the current stream."""
    return torch.empty(size_bytes, dtype=torch.uint8, device=_device(device))


def _allocated_on(stream: torch.cuda.Stream, size_bytes: int, device: int) -> Tensor:
    """What was there before was used by earlier work of that stream, and by no other stream's that may still run."""
    with torch.cuda.stream(stream):
        return allocated(size_bytes, device)


@cache
def _device(index: int) -> torch.device:
    return torch.device("cuda", index)
