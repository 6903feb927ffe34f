"""Device memory that split-K needs, in every family."""

from __future__ import annotations

from typing import Final

#: One semaphore per part of a tile: `Semaphore` in workers/kernels/common/semaphore.cuh.
SEMAPHORE_BYTES: Final = 16
#: As much as the library is given for its workspace.
WORKSPACE_BYTES: Final = 64 * 2**20
