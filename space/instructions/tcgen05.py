"""`tcgen05.mma`: one thread of a data-centre Blackwell GPU starts an asynchronous multiply, with D in tensor memory.

Shapes, types and major modes are in a run-time register, the instruction descriptor. The compiler checks only kind,
`cta_group` and scale vector, and an illegal shape is undefined behaviour on the GPU: these tables are the only guard.
Source: PTX ISA 9.0 §9.7.16.2.1 table 39 (kinds and shapes), §9.7.16.10.1 tables 51 and 52 (major modes, N of a
transposed 8-bit B), §9.7.16.10.7.1 table 57 (block scales). Left out: sparse forms, and K = 96 of `mxf4`, which sm_100a
lacks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from space.elements import element_bits
from space.instructions.operand import ANY_MAJOR, INT8, K_MAJOR, NARROW, Major, accumulator_of

ARCHS: Final = ("sm_100a", "sm_103a")
#: sm_103a has no integer products: NVRTC 13.5 refuses kind::i8 there.
INTEGER_ARCHS: Final = ("sm_100a",)
SOURCE: Final = "PTX ISA 9.0 §9.7.16.2.1 table 39, tcgen05.mma"

#: Columns of tensor memory that a block may allocate (§9.7.16.7.1).
TMEM_ALLOCATIONS: Final = (32, 64, 128, 256, 512)
#: Columns-per-thread factors of `tcgen05.ld` and `tcgen05.st` by shape (§9.7.16.8): a thread reads ≤ 128 registers.
TMEM_LOAD_REPEATS: Final[dict[str, tuple[int, ...]]] = {
    "32x32b": (1, 2, 4, 8, 16, 32, 64, 128),
    "16x64b": (1, 2, 4, 8, 16, 32, 64, 128),
    "16x128b": (1, 2, 4, 8, 16, 32, 64),
    "16x256b": (1, 2, 4, 8, 16, 32),
}

_STEP_8: Final = tuple(range(8, 257, 8))
_STEP_16: Final = tuple(range(16, 257, 16))
_STEP_32: Final = tuple(range(32, 257, 32))
#: N of kind::i8 on one SM: 8, 16, 24, then multiples of 16.
_INTEGER: Final = (8, 16, 24, *range(32, 257, 16))
#: N of the weight-stationary form.
_STATIONARY: Final = (64, 128, 256)


@dataclass(frozen=True, slots=True)
class Tcgen05:
    """One kind with one pair of operand types, one accumulator type and one `cta_group`.

    Attributes:
        kind: PTX's `.kind`, without the word.
        dtype_a, dtype_b, dtype_acc: keys of `ELEMENT_BITS`.
        k: extent of one instruction along K.
        cta_group: blocks that multiply together; each of two holds half of A's rows and half of B's columns.
        m: legal M, both blocks together.
        n: legal N with A and B in shared memory and a K-major B; `n_of` gives the other cases.
        majors: major modes of A and of B in shared memory. MN-major tf32 needs the 128-byte swizzle with
            32-byte atoms; every other kind forbids that mode.
        scale_dtype, scale_vec: dtype of the block scales, and number per row over K; empty and 0 without block scales.
        weight_stationary: whether it is the `.ws` form, which keeps B instead of A.
    """

    kind: str
    dtype_a: str
    dtype_b: str
    dtype_acc: str
    k: int
    cta_group: int
    m: tuple[int, ...]
    n: tuple[int, ...]
    majors: tuple[Major, ...] = ANY_MAJOR
    scale_dtype: str = ""
    scale_vec: int = 0
    weight_stationary: bool = False
    archs: tuple[str, ...] = ARCHS
    source: str = SOURCE

    @property
    def negates(self) -> bool:
        """Whether the descriptor may negate A or B."""
        return self.kind != "i8"

    def n_of(self, m: int, *, major_b: Major = "k", a_in_tmem: bool = False) -> tuple[int, ...]:
        """Legal N for one M; empty if M or the major mode is illegal.

        An N-major 8-bit B needs N in steps of 16 (32 with two blocks). With A in tensor memory, M of
        128 on one SM needs steps of 16 and two blocks need steps of 32 (CUTLASS
        `include/cute/arch/mma_sm100_umma.hpp`: asserts of the `_TS` forms; the ISA is silent).
        """
        if m not in self.m or major_b not in self.majors:
            return ()
        step = 8
        if major_b == "mn" and self.kind in ("i8", "f8f6f4", "mxf8f6f4"):
            step = 16 * self.cta_group
        if a_in_tmem:
            step = max(step, 32 if self.cta_group == 2 else 16 if m == 128 else 8)
        return tuple(n for n in self.n if n % step == 0)

    @property
    def mnemonic(self) -> str:
        """The instruction's name, which contains neither dtypes nor shape."""
        name = f"tcgen05.mma{'.ws' if self.weight_stationary else ''}.cta_group::{self.cta_group}.kind::{self.kind}"
        return f"{name}.block_scale.scale_vec::{self.scale_vec}X" if self.scale_vec else name


def _dense(kind: str, a: str, b: str, acc: str, n_one: tuple[int, ...] = _STEP_8,
           n_two: tuple[int, ...] = _STEP_16) -> tuple[Tcgen05, ...]:  # fmt: skip
    """The three forms of a kind without block scales: one block, two blocks, weight-stationary."""
    k = 256 // max(element_bits(a), 8)  # 32 bytes of K, with one byte for each fp6 or fp4
    archs = INTEGER_ARCHS if kind == "i8" else ARCHS
    return (
        Tcgen05(kind, a, b, acc, k, 1, (64, 128), n_one, archs=archs),
        Tcgen05(kind, a, b, acc, k, 2, (128, 256), n_two, archs=archs),
        Tcgen05(kind, a, b, acc, k, 1, (32, 64, 128), _STATIONARY, weight_stationary=True, archs=archs),
    )


def _scaled(kind: str, a: str, b: str, k: int, scale_dtype: str, scale_vec: int) -> tuple[Tcgen05, ...]:
    majors = ANY_MAJOR if kind == "mxf8f6f4" else K_MAJOR
    return (
        Tcgen05(kind, a, b, "f32", k, 1, (128,), _STEP_8, majors, scale_dtype, scale_vec),
        Tcgen05(kind, a, b, "f32", k, 2, (128, 256), _STEP_16, majors, scale_dtype, scale_vec),
    )


TCGEN05: Final[tuple[Tcgen05, ...]] = (
    *_dense("f16", "bf16", "bf16", "f32"),
    *_dense("f16", "fp16", "fp16", "f32"),
    *_dense("f16", "fp16", "fp16", "fp16"),
    *_dense("tf32", "tf32", "tf32", "f32"),
    *(row for a in INT8 for b in INT8 for row in _dense("i8", a, b, "s32", _INTEGER, _STEP_32)),
    *(row for a in NARROW for b in NARROW for acc in ("f32", "fp16") for row in _dense("f8f6f4", a, b, acc)),
    *(row for a in NARROW for b in NARROW for row in _scaled("mxf8f6f4", a, b, 32, "ue8m0", 1)),
    *_scaled("mxf4", "fp4_e2m1", "fp4_e2m1", 64, "ue8m0", 2),
    *_scaled("mxf4nvf4", "fp4_e2m1", "fp4_e2m1", 64, "ue8m0", 2),
    *_scaled("mxf4nvf4", "fp4_e2m1", "fp4_e2m1", 64, "ue8m0", 4),
    *_scaled("mxf4nvf4", "fp4_e2m1", "fp4_e2m1", 64, "ue4m3", 4),
)


def tcgen05_for(dtype_a: str, dtype_b: str, dtype_acc: str, *, cta_group: int = 1) -> tuple[Tcgen05, ...]:
    """The rows of these dtypes, plain kinds first; empty if no `tcgen05.mma` multiplies them."""
    dtypes = (dtype_a, dtype_b, accumulator_of(dtype_acc))
    return tuple(row for row in TCGEN05 if (row.dtype_a, row.dtype_b, row.dtype_acc) == dtypes
                 and row.cta_group == cta_group)  # fmt: skip
