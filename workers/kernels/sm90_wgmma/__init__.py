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
    # entry.cuh and entry_scaled.cuh before halves of C overlapped, which no config had then, and before ptxas 13.0 was
    # helped to transposed tiles of 208 columns, of which it had compiled none (docs/measuring.md).
    alike=(
        "61aed756da0d7b87cc2d330eb192bf7aed69b8a4dfce91f68445565fdfe4cb11",
        "b580d2caf440aa42628e74d9cd470b725f3ac9f22500cddaeaf694fbaf4d4b03",
        "566d99ac0170afd078088c833a134f04b4567d3903b33546c5d1e8985e4e2747",
        "12b60defc879fb802f92f4c5d2dd764b284b9fb31728f9770a21c019f35afcb0",
    ),
)  # fmt: skip
