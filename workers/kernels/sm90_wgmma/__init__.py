"""Kernel source of family `sm90_wgmma`."""

from __future__ import annotations

from typing import Final

from workers.kernels.sm90_wgmma.mma_async import wgmma_mma_async
from workers.kernels.source import KernelSource

SOURCE: Final = KernelSource(
    "sm90_wgmma/entry.cuh",
    enumerators={
        "schedule": "Schedule", "a_source": "ASource", "epilogue": "Epilogue", "output": "Output",
        "activation": "Activation",
    },
    not_members=frozenset({"input_a", "input_b", "packs"}),
    other_entries={"scaled_rowwise": "sm90_wgmma/entry_scaled.cuh"},
    # Part of a program only where an operand must be packed first.
    extra_entries={"packs": "common/pack_entry.cuh"},
    generate=lambda constants: {"ptx/wgmma_mma_async.cuh": wgmma_mma_async(constants)},
)  # fmt: skip
