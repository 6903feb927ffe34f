"""`cp.async.bulk.tensor`: limits of the tensor maps that the driver encodes.

They are those of `cuTensorMapEncodeTiled` (CUDA driver API, "Tensor Map Object Management") without interleaving, which
no GEMM here uses. `tests/tensor_maps.py` states them as conditions on a map, which GPU tests compare with the driver.
"""

from __future__ import annotations

from typing import Final

SOURCE: Final = "CUDA driver API, cuTensorMapEncodeTiled"
#: Size of a tensor map, and its alignment in parameters, constant or global memory.
MAP_BYTES, MAP_ALIGN_BYTES = 128, 64
ADDRESS_STEP_BYTES: Final = 16
STRIDE_STEP_BYTES: Final = 16
MAX_BOX_EXTENT: Final = 256
#: The innermost extent of a box is a multiple of this.
BOX_STEP_BYTES: Final = 16
#: A box starts at a multiple of this in shared memory (PTX ISA 9.0, cp.async.bulk.tensor).
SMEM_STEP_BYTES: Final = 128
#: Swizzle spans in bytes; 0 is no swizzle.
SWIZZLE_SPANS: Final = (0, 32, 64, 128)
#: Bytes that a copy makes L2 fetch at least; 0 fetches what the copy needs.
L2_PROMOTIONS: Final = (0, 64, 128, 256)
#: Size of the mbarrier that a copy signals, and the most bytes that one phase of it counts (PTX ISA 9.0, "mbarrier").
MBARRIER_BYTES, MAX_TRANSACTION_BYTES = 8, 2**20 - 1


def stride_gap_bytes(stride_bytes: int) -> int:
    """Bytes past the last multiple that TMA accepts as a stride; 0 for an accepted stride."""
    return stride_bytes % STRIDE_STEP_BYTES
