"""mma_sync: GEMM for every tensor core from Ampere on (cp.async ring, ldmatrix, `mma.sync`)."""

from __future__ import annotations

from typing import Final

from space.families.mma_sync.derive import DERIVED
from space.families.mma_sync.estimate import estimate_us
from space.families.mma_sync.knobs import KNOBS
from space.families.mma_sync.operands import problem_constants, reads_what_tma_can_not
from space.families.mma_sync.rules import FALLBACKS, LEGAL, TARGETS
from space.families.mma_sync.worth import WORTH
from space.plug import Family

#: No measurement of any target grounds its estimate yet.
MMA_SYNC: Final = Family(
    "mma_sync", TARGETS, KNOBS, DERIVED, LEGAL + WORTH, estimate_us, problem_constants=problem_constants,
    grounded=False, fallbacks=FALLBACKS, competes=reads_what_tma_can_not,
    structure=("swap_ab", "tile_m", "tile_n", "warps_m", "warps_n", "split_k", "stream_k"),
)  # fmt: skip
