"""Launches whose arguments tests compare: what a call passes again, and what a plan says, equal the launcher's."""

from __future__ import annotations

from space.devices import profile_named
from space.kinds.gemm import Gemm

H200 = profile_named("NVIDIA H200")
#: Straight and swapped, by TMA and directly, packed, transposed, with split-K and without.
CASES: list[tuple[Gemm, str, dict[str, object]]] = [
    (Gemm.parse("4096x4096x4096"), "sm90_wgmma", {}),
    (Gemm.of(16, 4096, 4096, epilogue="alpha"), "sm90_wgmma",
     {"swap_ab": 1, "tile_n": 16, "split_k": 4, "epilogue": "direct"}),
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
]  # fmt: skip
