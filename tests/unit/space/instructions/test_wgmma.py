"""The wgmma table against the ISA's matrix, written out once more by hand."""

from __future__ import annotations

import pytest

from space.instructions.operand import PTX_DTYPES, majors_of
from space.instructions.wgmma import WGMMA, wgmma_for
from space.kinds.gemm import DTYPES
from space.problem import DTYPE_BYTES

#: The 18 extents of PTX ISA §9.7.15.2 for s8, u8.
EIGHTEEN = (8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256)

#: (PTX types of A, B and D, K, number of N, transposes, satfinite)
MATRIX = [
    ("f16", "f16", "f16", 16, 32, True, False),
    ("f16", "f16", "f32", 16, 32, True, False),
    ("bf16", "bf16", "f32", 16, 32, True, False),
    ("tf32", "tf32", "f32", 8, 32, False, False),
    # fp8 types mix freely and accumulate in either.
    *((a, b, d, 32, 32, False, False) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2") for d in ("f16", "f32")),
    # s8 and u8 mix since PTX 8.4.
    *((a, b, "s32", 32, 18, False, True) for a in ("s8", "u8") for b in ("s8", "u8")),
]


def test_the_table_is_the_matrix_of_the_isa() -> None:
    stated = {
        (PTX_DTYPES[row.dtype_a], PTX_DTYPES[row.dtype_b], PTX_DTYPES[row.dtype_acc], row.k, len(row.n),
         row.transposes, row.saturates)
        for row in WGMMA
    }  # fmt: skip
    assert stated == set(MATRIX)
    assert len(WGMMA) == len(MATRIX)


def test_float_n_has_every_multiple_of_8_and_integer_n_the_eighteen() -> None:
    for row in WGMMA:
        assert row.n == (EIGHTEEN if row.dtype_acc == "s32" else tuple(range(8, 257, 8)))


def test_one_instruction_spans_32_bytes_of_k() -> None:
    assert {row.k * DTYPE_BYTES[row.dtype_a] for row in WGMMA} == {32}


def test_accumulators_of_a_thread_grow_with_n() -> None:
    # Four f32 registers are those of N = 8 only; N = 256 needs 128, and fp16 packs two into one.
    f32, f16 = wgmma_for("fp16", "fp16", "f32"), wgmma_for("fp16", "fp16", "fp16")
    assert f32 is not None
    assert f16 is not None
    assert [f32.accumulator_registers(n) for n in (8, 64, 256)] == [4, 32, 128]
    assert [f16.accumulator_registers(n) for n in (8, 64, 256)] == [2, 16, 64]


def test_every_dtype_word_of_a_problem_has_an_instruction() -> None:
    for a, b, _, acc in DTYPES.values():
        row = wgmma_for(a, b, acc)
        assert row is not None
        assert row.k * DTYPE_BYTES[a] == 32


@pytest.mark.parametrize(
    "dtypes",
    [
        ("fp16", "bf16", "f32"),
        ("bf16", "bf16", "fp16"),
        ("tf32", "tf32", "fp16"),
        ("fp8_e4m3", "int8", "f32"),
        ("int8", "int8", "f32"),
        ("fp4_e2m1", "fp4_e2m1", "f32"),
    ],
)
def test_types_that_do_not_go_together_have_no_row(dtypes: tuple[str, str, str]) -> None:
    assert wgmma_for(*dtypes) is None


def test_only_16_bit_operands_may_lie_mn_major() -> None:
    for row in WGMMA:
        allowed = {layout for layout in ("nt", "nn", "tn", "tt")
                   if majors_of(layout)[0] in row.majors_a and majors_of(layout)[1] in row.majors_b}  # fmt: skip
        assert allowed == ({"nt", "nn", "tn", "tt"} if DTYPE_BYTES[row.dtype_a] == 2 else {"nt"})


def test_the_name_of_an_instruction() -> None:
    bf16, s8 = wgmma_for("bf16", "bf16", "f32"), wgmma_for("int8", "uint8", "s32")
    assert bf16 is not None
    assert s8 is not None
    assert bf16.mnemonic(256) == "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16"
    assert s8.mnemonic(48, satfinite=True) == "wgmma.mma_async.sync.aligned.m64n48k32.s32.s8.u8.satfinite"
