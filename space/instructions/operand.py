"""What the tables share: PTX's names of dtypes, and major modes."""

from __future__ import annotations

from typing import Final, Literal

#: `k`: contiguous along K; `mn`: contiguous along M (A) or N (B).
Major = Literal["k", "mn"]

K_MAJOR: Final[tuple[Major, ...]] = ("k",)
ANY_MAJOR: Final[tuple[Major, ...]] = ("k", "mn")

#: PTX's name of each dtype (PTX ISA, "Fundamental Types" and "Alternate Floating-Point Data Formats").
PTX_DTYPES: Final[dict[str, str]] = {
    "bf16": "bf16", "fp16": "f16", "tf32": "tf32", "f32": "f32", "s32": "s32", "int8": "s8", "uint8": "u8",
    "fp8_e4m3": "e4m3", "fp8_e5m2": "e5m2", "fp6_e2m3": "e2m3", "fp6_e3m2": "e3m2", "fp4_e2m1": "e2m1",
}  # fmt: skip

FP8: Final = ("fp8_e4m3", "fp8_e5m2")
INT8: Final = ("int8", "uint8")
#: Floating-point types of eight bits or fewer, those of `kind::f8f6f4`.
NARROW: Final = (*FP8, "fp6_e2m3", "fp6_e3m2", "fp4_e2m1")

_MAJORS: Final[dict[str, tuple[Major, Major]]] = {
    "nt": ("k", "k"), "nn": ("k", "mn"), "tn": ("mn", "mn"), "tt": ("mn", "k"),
}  # fmt: skip


def majors_of(layout: str) -> tuple[Major, Major]:
    """Major modes of A and B in a layout: both are K-major in `nt` (A[M,K], B[N,K]).

    Raises:
        KeyError: `layout` is not one of `space.kinds.gemm.LAYOUTS`.
    """
    return _MAJORS[layout]


def accumulator_of(dtype_acc: str) -> str:
    """The accumulator type of an instruction for a problem's `dtype_acc`; promotion happens between instructions."""
    return "f32" if dtype_acc == "f32_promoted" else dtype_acc
