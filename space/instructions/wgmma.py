"""`wgmma.mma_async`: a warpgroup of Hopper computes D[64,N] (+)= A[64,K] · B[K,N] asynchronously.

Source of every row: PTX ISA 9.0 §9.7.15.5 (shapes, types, immediates) and §9.7.15.2 (N per type). The tests assemble
each legal row, and its illegal neighbours. Left out: the sparse forms and the one-bit form, which no problem kind uses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from space.arch import WARP_THREADS
from space.elements import element_bits
from space.instructions.operand import ANY_MAJOR, FP8, INT8, K_MAJOR, PTX_DTYPES, Major, accumulator_of

#: Rows of D in every shape: four warps with 16 rows each.
M: Final = 64
#: Threads that execute one instruction.
WARPGROUP_THREADS: Final = 4 * WARP_THREADS
#: K of every shape, in bytes.
K_BYTES: Final = 32
#: Columns of the narrowest shape, and the step between shapes.
N_STEP: Final = 8
ARCHS: Final = ("sm_90a",)
SOURCE: Final = "PTX ISA 9.0 §9.7.15.5, wgmma.mma_async"
#: 32-bit registers per thread of an A in registers, the same for every dtype.
A_REGISTERS: Final = 4

#: Legal N of the floating-point types.
FLOAT_N: Final = tuple(range(N_STEP, 257, N_STEP))
#: Legal N of the integer types: above 32 only multiples of 16, so 24 is legal but 40, 56, 72 … are not.
INTEGER_N: Final = (8, 16, 24, *range(32, 257, 16))

Count = TypeVar("Count", int, npt.NDArray[np.int64])


@dataclass(frozen=True, slots=True)
class Wgmma:
    """One pair of operand types with one accumulator type.

    Attributes:
        dtype_a, dtype_b, dtype_acc: keys of `ELEMENT_BITS`; accumulators are `f32`, `fp16` or `s32`.
        k: extent of one instruction along K, in elements.
        n: legal extents along N.
        majors_a, majors_b: major modes of an operand in shared memory.
        a_in_registers: whether A may be in registers, where it has no major mode.
        saturates: whether `.satfinite` is allowed, with which s32 accumulators clamp instead of wrapping.
        negates: whether the instruction has the immediates `imm-scale-a` and `imm-scale-b` (1 or -1).
    """

    dtype_a: str
    dtype_b: str
    dtype_acc: str
    k: int
    n: tuple[int, ...] = FLOAT_N
    majors_a: tuple[Major, ...] = K_MAJOR
    majors_b: tuple[Major, ...] = K_MAJOR
    a_in_registers: bool = True
    saturates: bool = False
    negates: bool = True
    archs: tuple[str, ...] = ARCHS
    source: str = SOURCE

    @property
    def transposes(self) -> bool:
        """Whether the instruction has the immediates `imm-trans-a` and `imm-trans-b`: with 16-bit operands only."""
        return "mn" in self.majors_b

    def accumulator_registers(self, n: Count) -> Count:
        """32-bit registers of D[64,n] per thread: n/2, or n/4 with fp16, of which two share a register."""
        return M * n // (WARPGROUP_THREADS * (2 if self.dtype_acc == "fp16" else 1))

    def mnemonic(self, n: int, *, satfinite: bool = False) -> str:
        """The instruction's full name, as in `wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16`."""
        types = ".".join(PTX_DTYPES[word] for word in (self.dtype_acc, self.dtype_a, self.dtype_b))
        return f"wgmma.mma_async.sync.aligned.m{M}n{n}k{self.k}.{types}" + (".satfinite" if satfinite else "")


def _row(a: str, b: str, acc: str) -> Wgmma:
    """The row of these types: K of 32 bytes, any major mode for 16-bit operands only, fewer N for integers."""
    bits, integer = element_bits(a), acc == "s32"
    majors = ANY_MAJOR if bits == 16 else K_MAJOR
    return Wgmma(
        a, b, acc, 8 * K_BYTES // bits, INTEGER_N if integer else FLOAT_N, majors, majors, saturates=integer,
        negates=not integer,
    )  # fmt: skip


WGMMA: Final[tuple[Wgmma, ...]] = (
    _row("bf16", "bf16", "f32"),
    _row("fp16", "fp16", "f32"),
    _row("fp16", "fp16", "fp16"),
    _row("tf32", "tf32", "f32"),
    *(_row(a, b, acc) for a in FP8 for b in FP8 for acc in ("f32", "fp16")),
    *(_row(a, b, "s32") for a in INT8 for b in INT8),
)

_BY_DTYPES: Final = {(row.dtype_a, row.dtype_b, row.dtype_acc): row for row in WGMMA}


def wgmma_for(dtype_a: str, dtype_b: str, dtype_acc: str) -> Wgmma | None:
    """The row of these dtypes; None if no `wgmma` multiplies them."""
    return _BY_DTYPES.get((dtype_a, dtype_b, accumulator_of(dtype_acc)))
