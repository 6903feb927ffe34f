"""`mma.sync`: a warp computes D[M,N] = A[M,K] · B[K,N] + C, with all operands in registers.

A is always row-major and B column-major, so both are K-major; other layouts depend on how fragments are loaded
(`ldmatrix.trans` for 16-bit types). Source of every row: PTX ISA 9.0 §9.7.14.5.14, and §9.7.14.3 for block-scaled
kinds. The tests assemble each row on every arch that it names, and check that no other arch assembles it. Left out:
sparse, one-bit, four-bit integer and f64 forms, and m8n8k4 of Volta.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from space.arch import ARCHS, WARP_THREADS
from space.elements import element_bits
from space.instructions.operand import FP8, INT8, NARROW, PTX_DTYPES, accumulator_of

SOURCE: Final = "PTX ISA 9.0 §9.7.14.5.14, mma"

_ALL: Final = tuple(ARCHS)
_FROM_ADA: Final = tuple(name for name, arch in ARCHS.items() if "mma_fp8" in arch.features)
_CONSUMER_BLACKWELL: Final = tuple(name for name, arch in ARCHS.items() if "mma_fp4" in arch.features)


@dataclass(frozen=True, slots=True)
class MmaSync:
    """One shape with one pair of operand types and one accumulator type.

    Attributes:
        dtype_a, dtype_b, dtype_acc: keys of `ELEMENT_BITS`.
        m, n, k: extents of one instruction.
        archs: archs for which it assembles.
        kind: PTX's `.kind`; empty for the plain forms. `f8f6f4` and `mxf8f6f4` store one element per byte; `mxf4` and
            `mxf4nvf4` pack two.
        scale_dtype: dtype of the block scales of A and B; empty without block scales.
        scale_vec: scales per row of A, and per column of B, over K of one instruction; 0 without block scales.
        saturates: whether `.satfinite` is allowed.
    """

    dtype_a: str
    dtype_b: str
    dtype_acc: str
    m: int
    n: int
    k: int
    archs: tuple[str, ...] = _ALL
    kind: str = ""
    scale_dtype: str = ""
    scale_vec: int = 0
    saturates: bool = False
    source: str = SOURCE

    @property
    def a_registers(self) -> int:
        """32-bit registers of A per thread."""
        return self.m * self.k * self._operand_bits(self.dtype_a) // (WARP_THREADS * 32)

    @property
    def b_registers(self) -> int:
        """32-bit registers of B per thread."""
        return self.n * self.k * self._operand_bits(self.dtype_b) // (WARP_THREADS * 32)

    @property
    def accumulator_registers(self) -> int:
        """32-bit registers of C per thread, and as many of D."""
        return self.m * self.n * element_bits(self.dtype_acc) // (WARP_THREADS * 32)

    def mnemonic(self, *, satfinite: bool = False) -> str:
        """The instruction's full name, as in `mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32`."""
        acc = PTX_DTYPES[self.dtype_acc]
        types = f"{acc}.{PTX_DTYPES[self.dtype_a]}.{PTX_DTYPES[self.dtype_b]}.{acc}"
        name = f"mma.sync.aligned.m{self.m}n{self.n}k{self.k}.row.col"
        if self.kind:
            name += f".kind::{self.kind}"
        if self.scale_vec:
            return f"{name}.block_scale.scale_vec::{self.scale_vec}X.{types}.{self.scale_dtype}"
        return f"{name}{'.satfinite' if satfinite else ''}.{types}"

    def _operand_bits(self, dtype: str) -> int:
        return 8 if self.kind in ("f8f6f4", "mxf8f6f4") else element_bits(dtype)


def _fp4(kind: str, scale_dtype: str, scale_vec: int) -> MmaSync:
    return MmaSync("fp4_e2m1", "fp4_e2m1", "f32", 16, 8, 64, _CONSUMER_BLACKWELL, kind, scale_dtype, scale_vec)


MMA_SYNC: Final[tuple[MmaSync, ...]] = (
    *(MmaSync("bf16", "bf16", "f32", 16, 8, k) for k in (8, 16)),
    *(MmaSync("fp16", "fp16", acc, 16, 8, k) for acc in ("f32", "fp16") for k in (8, 16)),
    *(MmaSync("tf32", "tf32", "f32", 16, 8, k) for k in (4, 8)),
    *(MmaSync(a, b, "s32", m, 8, k, saturates=True)
      for a in INT8 for b in INT8 for m, k in ((8, 16), (16, 16), (16, 32))),
    *(MmaSync(a, b, acc, 16, 8, k, _FROM_ADA)
      for a in FP8 for b in FP8 for acc in ("f32", "fp16") for k in (16, 32)),
    *(MmaSync(a, b, acc, 16, 8, 32, _CONSUMER_BLACKWELL, "f8f6f4")
      for a in NARROW for b in NARROW for acc in ("f32", "fp16")),
    *(MmaSync(a, b, "f32", 16, 8, 32, _CONSUMER_BLACKWELL, "mxf8f6f4", "ue8m0", 1) for a in NARROW for b in NARROW),
    _fp4("mxf4", "ue8m0", 2),
    _fp4("mxf4nvf4", "ue8m0", 2),
    _fp4("mxf4nvf4", "ue8m0", 4),
    _fp4("mxf4nvf4", "ue4m3", 4),
)  # fmt: skip


def mma_sync_for(arch: str, dtype_a: str, dtype_b: str, dtype_acc: str, *, kind: str = "") -> tuple[MmaSync, ...]:
    """The rows of these dtypes on `arch`, largest K first; empty if there are none."""
    dtypes = (dtype_a, dtype_b, accumulator_of(dtype_acc))
    rows = [row for row in MMA_SYNC if (row.dtype_a, row.dtype_b, row.dtype_acc) == dtypes
            and arch in row.archs and row.kind == kind]  # fmt: skip
    return tuple(sorted(rows, key=lambda row: (row.k, row.m), reverse=True))
