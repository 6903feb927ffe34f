"""What tests of gemmtune.hpp launch, and how they compile it."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from space.kinds.gemm import Gemm
from tests.integration.workers import launches

ROOT = Path(__file__).resolve().parents[4]
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")

#: Clusters of two and of sixteen, small blocks, copies by TMA, and stream-K too.
CASES: list[tuple[Gemm, str, dict[str, object]]] = [
    *launches.CASES,
    (Gemm.of(4096, 4096, 4096, epilogue="alpha"), "sm90_wgmma", {"cluster_m": 2, "pdl": 1}),
    (Gemm.of(16, 28672, 4096), "sm90_wgmma",
     {"swap_ab": 1, "tile_m": 64, "tile_n": 16, "consumer_warpgroups": 1, "cluster_m": 2, "stages": 4}),
    (Gemm.of(256, 512, 512, layout="nn", epilogue="bias"), "mma_sync", {"copies": "tma", "swap_ab": 1}),
    (Gemm.of(512, 512, 128), "mma_sync", {"stream_k": 1}),
    (Gemm.of(4096, 4096, 8192), "sm90_wgmma", {"stream_k": 1, "schedule": "pingpong", "epilogue": "direct"}),
    (Gemm.of(4096, 4096, 4096, "fp16"), "sm90_wgmma", {"cluster_m": 4, "cluster_n": 4}),
]  # fmt: skip
INCLUDES = (f"-I{ROOT / 'tests' / 'cpp_stub'}", f"-I{ROOT / 'gemmtune' / 'cpp' / 'include'}")


def digest_of(place: int) -> str:
    return hashlib.sha256(str(place).encode()).hexdigest()
