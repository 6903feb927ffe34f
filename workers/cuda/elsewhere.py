"""Memory of no problem, touched before a candidate is timed, as a program touches much between two products."""

from __future__ import annotations

from typing import Final

from cuda.bindings import driver as cu

from workers.cuda.driver import Buffer, Stream, check

#: Buffers, each in pages of its own, and the bytes of each that are written. Of 16 any size and place of these had the
#: same effect on an H200, of up to four none had.
BUFFERS: Final = 16
BUFFER_BYTES: Final = 2 << 20
TOUCHED_BYTES: Final = 65_536


class Elsewhere:
    """Buffers that no candidate reads.

    A process that touches nothing but the operands of one product gets it faster than a program that does more: on an
    H200 a kernel in a graph takes 0.35 µs less, and a product of several kernels 0.35 µs less for each, until the
    process has written other memory, and then no longer. A torch program writes its random operands, and is past it
    (benchmarks/results/elsewhere_h200.md). The reason isn't known: translations of addresses would explain it.
    """

    def __init__(self) -> None:
        self._buffers = [Buffer.allocate(BUFFER_BYTES) for _ in range(BUFFERS)]

    def touch(self, stream: Stream) -> None:
        """Enqueues a write to each buffer."""
        for buffer in self._buffers:
            check("cuMemsetD8Async", cu.cuMemsetD8Async(buffer.address, 0, TOUCHED_BYTES, stream.handle))
