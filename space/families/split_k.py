"""Device memory of split-K in every family."""

from __future__ import annotations

from typing import Final

#: One semaphore per part of a tile: `Semaphore` in workers/kernels/common/semaphore.cuh.
SEMAPHORE_BYTES: Final = 16
#: Most that partial sums may take; cuBLASLt gets a workspace of the same size.
WORKSPACE_BYTES: Final = 64 * 2**20
