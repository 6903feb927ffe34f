"""DeepGEMM's published rule for sm_90 (csrc/jit_kernels/heuristics, mid-2026), as a ranking.

The rule names one config; its score also ranks the others, so the curve continues after the first measurement.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from benchmarks.search.nearest import nearest_order
from benchmarks.search.replay import Replay
from benchmarks.search.setting import Setting
from space.devices import profile_named
from space.kinds.gemm import Gemm
from space.knobs import KnobValue
from space.problem import DTYPE_BYTES

SMEM_BYTES: Final = 232_448
#: Bytes a clock: of L2 for the whole GPU (8 TB/s at 1.3 GHz at most), and of one SM's L1.
L2_LIMIT, L2_PER_SM, L1_PER_SM = 8e6 / 1300, 64, 128
MOST_STAGES: Final = 16


@dataclass(frozen=True)
class Choice:
    """One tile with its cluster and stages, and the cycles that the rule expects."""

    block_m: int
    block_n: int
    block_k: int
    cluster_m: int
    cluster_n: int
    stages: int
    cycles: float

    @property
    def wish(self) -> dict[str, KnobValue]:
        """In our knobs."""
        return {
            "swap_ab": 0, "split_k": 1, "tile_m": self.block_m, "tile_n": self.block_n, "tile_k": self.block_k,
            "cluster_m": self.cluster_m, "cluster_n": self.cluster_n, "stages": self.stages,
            "consumer_warpgroups": 1 if self.block_m <= 64 else 2, "schedule": "cooperative",
        }  # fmt: skip


def choices(problem: Gemm, sm_count: int) -> list[Choice]:
    """The rule's choices, best first; ties keep its order of enumeration."""
    return sorted(_enumerated(problem, sm_count), key=lambda choice: choice.cycles)


def rule_order(replay: Replay, setting: Setting, seed: int, most: int) -> list[int]:
    """Each choice as the nearest recorded candidate."""
    found = choices(replay.problem, profile_named(replay.device).sm_count)
    return nearest_order(replay, setting.family, (choice.wish for choice in found), most)


def _enumerated(problem: Gemm, sm_count: int) -> Iterator[Choice]:
    size, size_c = DTYPE_BYTES[problem.dtype_a], DTYPE_BYTES[problem.dtype_c]
    blocks_m = [64, 128] + [rows for rows in (16, 32) if problem.m <= rows] + [256] * (problem.dtype_c != "f32")
    block_k = 128 // size
    for (cluster_m, cluster_n), block_m in itertools.product(((1, 1), (1, 2), (2, 1)), blocks_m):
        for block_n in range(16, 257, 16):
            c_bytes = -(-block_m * block_n * size_c // 1024) * 1024
            stages = min(MOST_STAGES, (SMEM_BYTES - c_bytes - 256) // ((block_m + block_n) * block_k * size))
            small = block_m * block_n < 128 * 192
            if (block_m > 128 and block_n > 128) or stages < 3 or (small and stages < 4):
                continue
            tile = (block_m, block_n, cluster_m, cluster_n)
            yield Choice(block_m, block_n, block_k, cluster_m, cluster_n, stages, _cycles(problem, sm_count, *tile))


def _cycles(problem: Gemm, sms: int, block_m: int, block_n: int, cluster_m: int, cluster_n: int) -> float:
    size, c_bytes = DTYPE_BYTES[problem.dtype_a], block_m * block_n * DTYPE_BYTES[problem.dtype_c]
    blocks = -(-problem.m // block_m) * -(-problem.n // block_n)
    waves = -(-blocks // sms)
    if cluster_m * cluster_n > 1 and waves <= 1:
        return float("inf")
    l2 = problem.k * (block_m / cluster_n + block_n / cluster_m) * size + c_bytes
    loaded = problem.k * (block_m + block_n) * size
    l1 = loaded + problem.k * (max(64, block_m) + block_n) * size + 2 * c_bytes
    busy = blocks / (waves * sms)
    return max(l1 * blocks / (L1_PER_SM * sms), l2 * blocks / min(L2_PER_SM * sms, L2_LIMIT)) / busy
