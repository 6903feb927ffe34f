"""Kernel source of family `mma_sync`."""

from __future__ import annotations

from typing import Final

from workers.kernels.source import KernelSource

SOURCE: Final = KernelSource(
    "mma_sync/entry.cuh",
    enumerators={"input_a": "Input", "input_b": "Input", "output": "Output", "activation": "Activation",
                 "copies": "Copies"},
    not_members=frozenset({"packs", "tma"}),
    variants={"tma": "mma_sync/tma_entry.cuh"},
    # Part of a program only where an operand must be packed first.
    extra_entries={"packs": "common/pack_entry.cuh"},
)
