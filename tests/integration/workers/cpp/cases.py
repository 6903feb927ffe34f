"""What tests of gemmtune.hpp launch, and how they compile it."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from space.devices import profile_named
from space.kinds.gemm import Gemm

ROOT = Path(__file__).resolve().parents[4]
H200 = profile_named("NVIDIA H200")
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")

CASES: list[tuple[Gemm, str, dict[str, object]]] = [
    (Gemm.parse("4096x4096x4096"), "sm90_wgmma", {}),
    (Gemm.of(4096, 4096, 4096, epilogue="alpha"), "sm90_wgmma", {"cluster_m": 2, "pdl": 1}),
    (Gemm.of(16, 4096, 4096, epilogue="alpha"), "sm90_wgmma",
     {"swap_ab": 1, "tile_n": 16, "split_k": 4, "epilogue": "direct"}),
    (Gemm.of(16, 28672, 4096), "sm90_wgmma",
     {"swap_ab": 1, "tile_m": 64, "tile_n": 16, "consumer_warpgroups": 1, "cluster_m": 2, "stages": 4}),
    (Gemm.of(64, 4096, 4096, epilogue="alpha+beta+bias"), "sm90_wgmma", {"tile_n": 64, "epilogue": "direct"}),
    (Gemm.of(100, 4096, 4099), "sm90_wgmma", {"epilogue": "tma"}),
    (Gemm.of(256, 256, 128, "tf32", "tn", 3), "sm90_wgmma", {"tile_k": 32, "tile_n": 64}),
    (Gemm.of(64, 4096, 4096, "fp8_e4m3", epilogue="scaled_rowwise+bias"), "sm90_wgmma",
     {"tile_n": 64, "tile_k": 128, "epilogue": "direct"}),
    (Gemm.of(16, 4096, 4096, "fp8_e4m3", epilogue="scaled"), "sm90_wgmma",
     {"swap_ab": 1, "tile_n": 16, "tile_k": 128, "split_k": 4, "epilogue": "direct"}),
    (Gemm.of(1, 4096, 4096, epilogue="bias"), "gemv", {"split_k": 4}),
    (Gemm.of(2, 333, 1024, "fp16", "tt", 2), "gemv", {"rows": 2}),
    (Gemm.of(100, 4096, 4099, epilogue="alpha+beta+bias"), "mma_sync", {"tile_n": 64, "swap_ab": 1, "split_k": 4}),
    (Gemm.of(256, 250, 128, "int8", "tn", 3), "mma_sync", {"tile_k": 64}),
    (Gemm.of(256, 512, 512, layout="nn", epilogue="bias"), "mma_sync", {"copies": "tma", "swap_ab": 1}),
    (Gemm.of(512, 512, 128), "mma_sync", {"stream_k": 1}),
    (Gemm.of(4096, 4096, 8192), "sm90_wgmma", {"stream_k": 1, "schedule": "pingpong", "epilogue": "direct"}),
    (Gemm.of(4096, 4096, 4096, "fp16"), "sm90_wgmma", {"cluster_m": 4, "cluster_n": 4}),
]  # fmt: skip
INCLUDES = (f"-I{ROOT / 'tests' / 'cpp_stub'}", f"-I{ROOT / 'gemmtune' / 'cpp' / 'include'}")


def digest_of(place: int) -> str:
    return hashlib.sha256(str(place).encode()).hexdigest()
