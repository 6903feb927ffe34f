"""What split-K takes of device memory, whichever family splits."""

from __future__ import annotations

from typing import Final

#: Where the slices of one part of a tile meet: `Meeting` in workers/kernels/sm90_wgmma/arguments.cuh.
MEETING_BYTES: Final = 16
#: As much as the library is given for its workspace.
WORKSPACE_BYTES: Final = 64 * 2**20
