"""The tcgen05 table against PTX ISA table 39, written out once more by hand."""

from __future__ import annotations

import pytest

from space.arch import ARCHS
from space.elements import element_bits
from space.instructions.tcgen05 import (
    TCGEN05,
    TMEM_ALLOCATIONS,
    TMEM_LOAD_REPEATS,
    Tcgen05,
    tcgen05_for,
)

STEP_8, STEP_16, STEP_32 = (set(range(step, 257, step)) for step in (8, 16, 32))
#: (kind, cta_group, .ws) → K, M, N
TABLE = {
    ("f16", 1, False): (16, {64, 128}, STEP_8),
    ("f16", 2, False): (16, {128, 256}, STEP_16),
    ("f16", 1, True): (16, {32, 64, 128}, {64, 128, 256}),
    ("tf32", 1, False): (8, {64, 128}, STEP_8),
    ("tf32", 2, False): (8, {128, 256}, STEP_16),
    ("tf32", 1, True): (8, {32, 64, 128}, {64, 128, 256}),
    ("f8f6f4", 1, False): (32, {64, 128}, STEP_8),
    ("f8f6f4", 2, False): (32, {128, 256}, STEP_16),
    ("f8f6f4", 1, True): (32, {32, 64, 128}, {64, 128, 256}),
    # 24 is in, 40 and 56 are not; two blocks take steps of 32, not of 16.
    ("i8", 1, False): (32, {64, 128}, {8, 24} | STEP_16),
    ("i8", 2, False): (32, {128, 256}, STEP_32),
    ("i8", 1, True): (32, {32, 64, 128}, {64, 128, 256}),
    # Block-scaled kinds have no M of 64 on one SM, and no .ws.
    ("mxf8f6f4", 1, False): (32, {128}, STEP_8),
    ("mxf8f6f4", 2, False): (32, {128, 256}, STEP_16),
    ("mxf4", 1, False): (64, {128}, STEP_8),
    ("mxf4", 2, False): (64, {128, 256}, STEP_16),
    ("mxf4nvf4", 1, False): (64, {128}, STEP_8),
    ("mxf4nvf4", 2, False): (64, {128, 256}, STEP_16),
}


def test_the_table_is_that_of_the_isa() -> None:
    stated: dict[tuple[str, int, bool], set[tuple[int, tuple[int, ...], tuple[int, ...]]]] = {}
    for row in TCGEN05:
        stated.setdefault((row.kind, row.cta_group, row.weight_stationary), set()).add((row.k, row.m, row.n))
    assert set(stated) == set(TABLE)
    for form, (k, m, n) in TABLE.items():
        assert [(k_, set(m_), set(n_)) for k_, m_, n_ in stated[form]] == [(k, m, n)], form


def test_types_of_each_kind() -> None:
    kinds = {(row.kind, row.dtype_acc) for row in TCGEN05}
    assert kinds == {
        ("f16", "f32"), ("f16", "fp16"), ("tf32", "f32"), ("i8", "s32"), ("f8f6f4", "f32"), ("f8f6f4", "fp16"),
        ("mxf8f6f4", "f32"), ("mxf4", "f32"), ("mxf4nvf4", "f32"),
    }  # fmt: skip
    # An fp16 accumulator needs fp16 operands.
    assert tcgen05_for("bf16", "bf16", "fp16") == ()
    assert {row.archs for row in TCGEN05} == {("sm_100a",), ("sm_100a", "sm_103a")}


def test_block_scales() -> None:
    scales = {(row.kind, row.scale_dtype, row.scale_vec) for row in TCGEN05 if row.scale_vec}
    assert scales == {
        ("mxf8f6f4", "ue8m0", 1), ("mxf4", "ue8m0", 2), ("mxf4nvf4", "ue8m0", 2), ("mxf4nvf4", "ue8m0", 4),
        ("mxf4nvf4", "ue4m3", 4),
    }  # fmt: skip


def test_four_bit_kinds_read_k_major_only() -> None:
    assert {row.kind for row in TCGEN05 if "mn" not in row.majors} == {"mxf4", "mxf4nvf4"}


def test_integers_cannot_be_negated() -> None:
    assert {row.kind for row in TCGEN05 if not row.negates} == {"i8"}


def test_one_instruction_spans_32_bytes_of_k() -> None:
    for row in TCGEN05:
        bits = element_bits(row.dtype_a)
        # Only the 4-bit kinds pack two elements into a byte.
        bits = bits if row.kind in ("mxf4", "mxf4nvf4") else max(8, bits)
        assert row.k * bits == 256


@pytest.mark.parametrize(
    ("dtype", "cta_group", "m", "case", "steps"),
    [
        ("bf16", 1, 128, {}, 8),
        ("bf16", 1, 128, {"major_b": "mn"}, 8),
        # 8-bit, N-major B: table 52.
        ("fp8_e4m3", 1, 64, {"major_b": "mn"}, 16),
        ("fp8_e4m3", 2, 256, {"major_b": "mn"}, 32),
        # A from tensor memory: CUTLASS's asserts.
        ("bf16", 1, 64, {"a_in_tmem": True}, 8),
        ("bf16", 1, 128, {"a_in_tmem": True}, 16),
        ("bf16", 2, 128, {"a_in_tmem": True}, 32),
    ],
)
def test_n_by_case(dtype: str, cta_group: int, m: int, case: dict[str, object], steps: int) -> None:
    assert plain(dtype, cta_group).n_of(m, **case) == tuple(range(steps, 257, steps))  # type: ignore[arg-type]


def test_an_illegal_m_or_major_has_no_n() -> None:
    assert plain("bf16", 1).n_of(256) == ()
    assert plain("bf16", 2).n_of(64) == ()
    scaled = next(row for row in TCGEN05 if row.kind == "mxf4" and row.cta_group == 1)
    assert scaled.n_of(128, major_b="mn") == ()
    assert scaled.n_of(64) == ()


def test_a_block_may_allocate_all_of_tensor_memory_and_a_thread_loads_at_most_128_registers() -> None:
    assert TMEM_ALLOCATIONS[-1] == ARCHS["sm_100a"].tmem_columns
    # 128 registers a thread: 32 · repeats · width / 32 lanes / 32 bits.
    width = {"32x32b": 32, "16x64b": 32, "16x128b": 64, "16x256b": 128}
    assert {width[shape] * repeats[-1] // 32 for shape, repeats in TMEM_LOAD_REPEATS.items()} == {128}


def test_names_of_instructions() -> None:
    assert plain("bf16", 2).mnemonic == "tcgen05.mma.cta_group::2.kind::f16"
    assert {row.mnemonic for row in TCGEN05 if row.kind == "mxf4nvf4" and row.cta_group == 1} == {
        "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::2X",
        "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X",
    }


def plain(dtype: str, cta_group: int) -> Tcgen05:
    """The form of f32 accumulation with neither scales nor stationary weights."""
    rows = tcgen05_for(dtype, dtype, "f32", cta_group=cta_group)
    return next(row for row in rows if not row.weight_stationary and not row.scale_vec)
