"""The mma.sync table against the ISA's shapes, written out once more by hand."""

from __future__ import annotations

import pytest

from space.arch import ARCHS
from space.instructions.mma_sync import MMA_SYNC, mma_sync_for
from space.instructions.operand import NARROW

#: (A, B, accumulator) → shapes that every arch from sm_80 on has.
SINCE_AMPERE = {
    ("bf16", "bf16", "f32"): {(16, 8, 8), (16, 8, 16)},
    ("fp16", "fp16", "f32"): {(16, 8, 8), (16, 8, 16)},
    ("fp16", "fp16", "fp16"): {(16, 8, 8), (16, 8, 16)},
    ("tf32", "tf32", "f32"): {(16, 8, 4), (16, 8, 8)},
    ("int8", "uint8", "s32"): {(8, 8, 16), (16, 8, 16), (16, 8, 32)},
}


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtypes", SINCE_AMPERE)
def test_every_arch_has_the_shapes_of_ampere(arch: str, dtypes: tuple[str, str, str]) -> None:
    assert {(row.m, row.n, row.k) for row in mma_sync_for(arch, *dtypes)} == SINCE_AMPERE[dtypes]


def test_fp8_starts_with_ada() -> None:
    having = [arch for arch in ARCHS if mma_sync_for(arch, "fp8_e4m3", "fp8_e5m2", "f32")]
    assert having == ["sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120a", "sm_121a"]
    # Both K and both accumulators, since PTX 8.7.
    assert [row.k for row in mma_sync_for("sm_89", "fp8_e4m3", "fp8_e4m3", "fp16")] == [32, 16]


def test_a_promoted_sum_is_f32_inside_the_instruction() -> None:
    plain = mma_sync_for("sm_89", "fp8_e4m3", "fp8_e4m3", "f32")
    assert plain
    assert mma_sync_for("sm_89", "fp8_e4m3", "fp8_e4m3", "f32_promoted") == plain


def test_fp6_fp4_and_block_scales_are_of_consumer_blackwell_only() -> None:
    narrow = [row for row in MMA_SYNC if row.kind]
    assert {row.archs for row in narrow} == {("sm_120a", "sm_121a")}
    assert {(row.kind, row.scale_dtype, row.scale_vec, row.k) for row in narrow} == {
        ("f8f6f4", "", 0, 32),
        ("mxf8f6f4", "ue8m0", 1, 32),
        ("mxf4", "ue8m0", 2, 64),
        ("mxf4nvf4", "ue8m0", 2, 64),
        ("mxf4nvf4", "ue8m0", 4, 64),
        ("mxf4nvf4", "ue4m3", 4, 64),
    }
    assert len([row for row in narrow if row.kind == "mxf8f6f4"]) == len(NARROW) ** 2


def test_widest_comes_first() -> None:
    assert [row.k for row in mma_sync_for("sm_80", "bf16", "bf16", "f32")] == [16, 8]
    assert [(row.m, row.k) for row in mma_sync_for("sm_80", "int8", "int8", "s32")] == [(16, 32), (16, 16), (8, 16)]


@pytest.mark.parametrize(
    ("dtypes", "k", "registers"),
    [
        # PTX ISA, fragments of mma.m16n8kK: 32-bit registers of A, B and C.
        (("bf16", "bf16", "f32"), 16, (4, 2, 4)),
        (("bf16", "bf16", "f32"), 8, (2, 1, 4)),
        (("fp16", "fp16", "fp16"), 16, (4, 2, 2)),
        (("tf32", "tf32", "f32"), 8, (4, 2, 4)),
        (("tf32", "tf32", "f32"), 4, (2, 1, 4)),
        (("int8", "int8", "s32"), 32, (4, 2, 4)),
        (("fp8_e4m3", "fp8_e4m3", "fp16"), 16, (2, 1, 2)),
    ],
)
def test_registers_of_fragments(dtypes: tuple[str, str, str], k: int, registers: tuple[int, int, int]) -> None:
    row = next(row for row in mma_sync_for("sm_120a", *dtypes) if row.k == k)
    assert (row.a_registers, row.b_registers, row.accumulator_registers) == registers


def test_a_byte_holds_one_fp4_or_two_by_kind() -> None:
    rows = {kind: mma_sync_for("sm_120a", "fp4_e2m1", "fp4_e2m1", "f32", kind=kind)[0]
            for kind in ("f8f6f4", "mxf8f6f4", "mxf4")}  # fmt: skip
    assert {kind: (row.k, row.a_registers, row.b_registers) for kind, row in rows.items()} == {
        "f8f6f4": (32, 4, 2), "mxf8f6f4": (32, 4, 2), "mxf4": (64, 4, 2),
    }  # fmt: skip


def test_names_of_instructions() -> None:
    integer = mma_sync_for("sm_80", "int8", "uint8", "s32")[0]
    assert integer.mnemonic(satfinite=True) == "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32"
    scaled = mma_sync_for("sm_120a", "fp4_e2m1", "fp4_e2m1", "f32", kind="mxf4")[0]
    assert scaled.mnemonic() == (
        "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0"
    )


def test_what_no_arch_has_is_empty() -> None:
    assert mma_sync_for("sm_80", "bf16", "bf16", "fp16") == ()
    assert mma_sync_for("sm_80", "bf16", "fp16", "f32") == ()
    assert mma_sync_for("sm_75", "fp16", "fp16", "f32") == ()
