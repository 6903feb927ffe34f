"""Configs of sm90_wgmma that break exactly one rule each."""

from __future__ import annotations

#: A legal one whose last wave is shared out.
SHARED: dict[str, object] = {"stream_k": 1, "schedule": "pingpong", "tile_n": 96, "epilogue": "direct"}
#: (shape, dtype, layout, knobs, the one rule that breaks)
BREAKS: list[tuple[str, str, str, dict[str, object], str]] = [
    # 1,001 columns of C are 2,002 B, no multiple of 16, which only the TMA epilogues care about.
    ("4096x1001x4096", "bf16", "nt", {"epilogue": "tma"}, "tma.store_stride"),
    ("4096x4096x4096", "fp16_acc16", "nt", {}, "problem.sums"),
    # 192 rows over two warpgroups are 96 each, no multiple of 64.
    ("4096x4096x4096", "bf16", "nt", {"tile_m": 192}, "wgmma.m"),
    # Integers have no N = 40: above 32, N is a multiple of 16.
    ("4096x4096x4096", "int8", "nt", {"tile_n": 40, "tile_k": 128, "epilogue": "direct"}, "wgmma.n"),
    ("4096x4096x4096", "bf16", "nt", {"tile_n": 64, "instructions_n": 2}, "wgmma.n_wide"),
    # 256 elements of 2 bytes are 512 B of K, 512 are 1,024.
    ("4096x4096x4096", "bf16", "nt", {"tile_k": 512, "stages": 2, "tile_m": 64, "tile_n": 32, "consumer_warpgroups": 1,
                                      "producer_registers": 0}, "wgmma.k"),
    # Half of 176 columns is not a whole number of 64-column spans of an N-major B.
    ("4096x4096x4096", "bf16", "nn", {"tile_n": 176, "instructions_n": 2}, "wgmma.n_span"),
    ("4096x4096x4096", "bf16", "tn", {"a_source": "registers"}, "wgmma.a_registers"),
    ("4096x4096x4096", "fp8_e4m3_promoted", "nt", {"tile_k": 64, "swizzle_a": 64, "swizzle_b": 64}, "wgmma.promotion"),
    ("4096x4096x4096", "bf16", "nt", {"schedule": "pingpong", "tile_m": 64, "consumer_warpgroups": 3},
     "schedule.pingpong"),
    ("4096x4096x4096", "bf16", "nt", {"producer_registers": 0}, "registers.split"),
    ("4096x4096x4096", "bf16", "nt", {"producer_registers": 24, "cluster_m": 2}, "registers.producer"),
    # 256·256/(128·2) = 256 accumulators: more than a thread has registers.
    ("4096x4096x4096", "bf16", "nt", {"tile_m": 256, "tile_n": 256, "stages": 2, "epilogue": "direct"},
     "registers.held"),
    # 208 accumulators leave 32 registers; addresses of transposed stores need more.
    ("4096x4096x4096", "bf16", "nt", {"tile_m": 256, "tile_n": 208, "producer_registers": 24, "stages": 2,
                                      "swap_ab": 1, "epilogue": "direct"}, "registers.lean"),
    # A stage of 48 KiB; five of them exceed 227 KiB.
    ("4096x4096x4096", "bf16", "nt", {"tile_n": 256, "stages": 5, "epilogue": "direct"}, "smem.capacity"),
    # A K of 32 elements is 64 bytes: half a 128-byte swizzle span, for A and for B.
    ("4096x4096x4096", "bf16", "nt", {"tile_k": 32, "swizzle_b": 64}, "swizzle.a"),
    ("4096x4096x4096", "bf16", "nt", {"tile_k": 32, "swizzle_a": 64}, "swizzle.b"),
    # 40 rows of B over 2 blocks are 20, no multiple of the 8-row swizzle pattern.
    ("4096x4096x4096", "bf16", "nt", {"tile_n": 40, "cluster_m": 2}, "multicast.slice_b"),
    ("4096x4096x4096", "fp8_e4m3,fp8_e4m3,fp8_e4m3,f32", "nt", {"tile_k": 128, "epilogue": "tma"}, "epilogue.bytes"),
    ("4096x4096x4096", "tf32", "nt", {"tile_k": 32, "epilogue": "tma", "swap_ab": 1, "stages": 3}, "epilogue.swapped"),
    # 256 of K are four stages of 64.
    ("64x64x256", "bf16", "nt", {"split_k": 6, "tile_n": 64, "epilogue": "direct"}, "split.k"),
    # 4,096² sums of 4 bytes are 64 MiB, and there are two slices.
    ("4096x4096x4096", "bf16", "nt", {"split_k": 2, "epilogue": "direct"}, "split.workspace"),
    ("256x256x4096", "bf16", "nt", {"split_k": 2}, "split.epilogue"),
    ("256x256x4096", "bf16", "nt", {"split_k": 2, "tile_m": 256, "tile_n": 192, "stages": 3, "producer_registers": 24,
                                    "epilogue": "direct"}, "split.registers"),
    ("256x256x4096", "bf16", "nt", {"cluster_k": 2, "cluster_m": 2, "epilogue": "direct"}, "cluster.k_alone"),
    ("256x256x4096", "bf16", "nt", {"cluster_k": 2, "schedule": "pingpong", "tile_n": 64, "epilogue": "direct"},
     "cluster.k_schedule"),
    ("256x256x4096", "bf16", "nt", {"cluster_k": 2, "tile_n": 64}, "cluster.k_epilogue"),
    ("256x256x4096", "bf16", "nt", {**SHARED, "split_k": 2}, "stream_k.alone"),
    ("256x256x4096", "bf16", "nt", {**SHARED, "schedule": "cooperative"}, "stream_k.schedule"),
    ("256x256x4096", "bf16", "nt", {**SHARED, "epilogue": "tma"}, "stream_k.epilogue"),
    ("256x256x4096", "bf16", "nt", {**SHARED, "tile_n": 192, "producer_registers": 24}, "stream_k.registers"),
    ("256x256x4096", "bf16", "nt", {**SHARED, "tile_n": 56}, "stream_k.loop"),
    # 256 of K are four stages of 64.
    ("64x64x256", "bf16", "nt", {"cluster_k": 8, "tile_n": 64, "epilogue": "direct"}, "cluster.k"),
]
