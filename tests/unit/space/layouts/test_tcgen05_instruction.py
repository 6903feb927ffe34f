"""Instruction descriptors of tcgen05: bits by kind, encode undoes decode, and what can't be is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from space.errors import LayoutError
from space.instructions.tcgen05 import TCGEN05
from space.layouts.fragments.scale_factors import VECTORS
from space.layouts.tcgen05_instruction import KINDS, Tcgen05Instruction

BF16 = Tcgen05Instruction("f16", 128, 256, "bf16", "bf16")
NVFP4 = Tcgen05Instruction("mxf4nvf4", 128, 256, "fp4_e2m1", "fp4_e2m1", scale_dtype="ue4m3")


@st.composite
def instructions(draw: st.DrawFn) -> Tcgen05Instruction:
    kind = draw(st.sampled_from(sorted(KINDS)))
    facts = KINDS[kind]
    whole = kind == "i8"
    row = draw(st.sampled_from([row for row in TCGEN05 if row.kind == kind]))
    starts = VECTORS[f"{row.scale_vec}X"][1] if row.scale_vec else (0,)
    m, major_b = draw(st.sampled_from(row.m)), draw(st.sampled_from(row.majors))
    return Tcgen05Instruction(
        kind, m, draw(st.sampled_from(row.n_of(m, major_b=major_b))), row.dtype_a, row.dtype_b, row.dtype_acc,
        draw(st.sampled_from(row.majors)), major_b,
        negate_a=draw(st.booleans()) and not whole, negate_b=draw(st.booleans()) and not whole,
        saturate=draw(st.booleans()) and whole, sparse=draw(st.booleans()),
        max_shift=draw(st.sampled_from([0, 8, 16, 32])) if facts.outputs else 0,
        scale_dtype=row.scale_dtype,
        sf_id_a=draw(st.sampled_from(starts)), sf_id_b=draw(st.sampled_from(starts)),
        k96=draw(st.booleans()) and kind.startswith("mxf4"),
    )  # fmt: skip


@given(instructions())
def test_decode_undoes_encode(instruction: Tcgen05Instruction) -> None:
    assert Tcgen05Instruction.decode(instruction.encode(), instruction.kind) == instruction


@given(st.integers(0, 2**32 - 1), st.sampled_from(sorted(KINDS)))
def test_any_word_is_an_instruction_or_refused(word: int, kind: str) -> None:
    try:
        assert Tcgen05Instruction.decode(word, kind).encode() == word
    except LayoutError:
        return


@pytest.mark.parametrize(
    ("instruction", "word"),
    [
        # f32 sums of bf16, M 128, N 256: codes 1, 1, 1; N/8 at bit 17, M/16 at bit 24.
        (BF16, 1 << 4 | 1 << 7 | 1 << 10 | 32 << 17 | 8 << 24),
        (replace(BF16, major_b="mn", m=64, n=8), 1 << 4 | 1 << 7 | 1 << 10 | 1 << 16 | 1 << 17 | 4 << 24),
        (Tcgen05Instruction("tf32", 128, 64, "tf32", "tf32"), 1 << 4 | 2 << 7 | 2 << 10 | 8 << 17 | 8 << 24),
        (Tcgen05Instruction("i8", 128, 64, "int8", "uint8", "s32", saturate=True),
         1 << 3 | 2 << 4 | 1 << 7 | 8 << 17 | 8 << 24),
        (Tcgen05Instruction("mxf8f6f4", 256, 128, "fp8_e5m2", "fp6_e3m2", scale_dtype="ue8m0", sf_id_a=3, sf_id_b=1),
         1 << 4 | 1 << 7 | 4 << 10 | 16 << 17 | 1 << 23 | 2 << 27 | 3 << 29),
        (NVFP4, 1 << 7 | 1 << 10 | 32 << 17 | 1 << 27),
        (replace(NVFP4, k96=True), 1 << 7 | 1 << 10 | 32 << 17 | 1 << 27 | 1 << 31),
    ],
)  # fmt: skip
def test_golden_words(instruction: Tcgen05Instruction, word: int) -> None:
    assert instruction.encode() == word


@pytest.mark.parametrize(
    ("instruction", "said"),
    [
        (replace(BF16, kind="f32"), "'f32' is unknown"),
        (replace(BF16, m=96), "m = 96"),
        (replace(NVFP4, m=64), "m = 64 with kind::mxf4nvf4: use 128 or 256"),
        (replace(BF16, n=12), "n = 12"),
        (replace(BF16, n=264), "n = 264"),
        (replace(BF16, dtype_a="tf32"), "dtype_a = 'tf32'"),
        (replace(BF16, dtype_d="fp16"), "dtype_d = 'fp16' with kind::f16 of bf16 and bf16: use f32"),
        (replace(BF16, dtype_d="s32"), "dtype_d = 's32'"),
        (replace(BF16, saturate=True), "saturate = True"),
        (replace(NVFP4, max_shift=8), "max_shift = 8"),
        (replace(BF16, max_shift=4), "max_shift = 4"),
        (replace(BF16, k96=True), "k96 = True"),
        (replace(BF16, sparsity_selector=1), "dense A"),
        (replace(BF16, scale_dtype="ue8m0"), "no block scaling"),
        (replace(NVFP4, scale_dtype=""), "use ue4m3 or ue8m0"),
        (replace(NVFP4, kind="mxf4"), "'ue4m3' with kind::mxf4"),
        # Four factors of ue4m3 fill the word; two of ue8m0 fill half of it.
        (replace(NVFP4, sf_id_a=2), "sf_id_a = 2 with kind::mxf4nvf4 and ue4m3 scales: use 0$"),
        (replace(NVFP4, scale_dtype="ue8m0", sf_id_b=1), "sf_id_b = 1 .*use 0 or 2$"),
        (replace(BF16, sf_id_a=1), "sf_id_a = 1 with kind::f16: use 0$"),
        (replace(NVFP4, major_a="mn"), "major_a = 'mn' with kind::mxf4nvf4: use k"),
        (replace(BF16, dtype_b="fp16"), "no instruction multiplies these dtypes"),
        (Tcgen05Instruction("i8", 128, 64, "int8", "int8", "s32", negate_a=True), "cannot negate an operand"),
    ],
)
def test_what_can_not_be_is_refused(instruction: Tcgen05Instruction, said: str) -> None:
    with pytest.raises(LayoutError, match=said):
        instruction.encode()


@pytest.mark.parametrize(
    ("word", "kind", "said"),
    [
        (BF16.encode() | 1 << 6, "f16", "reserved bit 6"),
        (BF16.encode() | 2 << 7, "f16", "format_a 3 is unused"),
        (1 << 32, "f16", "32 bits"),
        (0, "f16", "m = 0"),
    ],
)
def test_words_of_no_instruction_are_refused(word: int, kind: str, said: str) -> None:
    with pytest.raises(LayoutError, match=said):
        Tcgen05Instruction.decode(word, kind)
