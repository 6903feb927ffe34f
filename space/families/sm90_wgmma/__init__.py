"""sm90_wgmma: persistent GEMM for Hopper (TMA, mbarrier ring, `wgmma.mma_async`)."""

from __future__ import annotations

from typing import Final

from space.families.sm90_wgmma.derive import DERIVED
from space.families.sm90_wgmma.estimate import estimate_us
from space.families.sm90_wgmma.knobs import KNOBS
from space.families.sm90_wgmma.operands import problem_constants
from space.families.sm90_wgmma.rules import LEGAL
from space.families.sm90_wgmma.worth import WORTH
from space.plug import Family

SM90_WGMMA: Final = Family(
    "sm90_wgmma", frozenset({"sm_90a"}), KNOBS, DERIVED, LEGAL + WORTH, estimate_us,
    problem_constants=problem_constants,
    structure=("swap_ab", "tile_m", "schedule", "consumer_warpgroups", "tile_n", "cluster_m", "cluster_n",
               "cluster_k", "split_k", "stream_k"),
)  # fmt: skip
