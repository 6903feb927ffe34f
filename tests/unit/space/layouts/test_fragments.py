"""Fragments: the ISA's formulas, golden corners, and that each element is held exactly as often as the ISA says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from space.errors import LayoutError
from space.instructions.mma_sync import MMA_SYNC, MmaSync
from space.instructions.wgmma import FLOAT_N, INTEGER_N, WGMMA, Wgmma
from space.layouts.fragments.fragment import Fragment
from space.layouts.fragments.matrix_moves import COUNTS, matrix_fragment
from space.layouts.fragments.mma_sync import ACCUMULATORS, SHAPES, mma_fragment
from space.layouts.fragments.named import fragment_named
from space.layouts.fragments.tcgen05 import SHAPES as TMEM_SHAPES
from space.layouts.fragments.tcgen05 import tmem_fragment
from space.layouts.fragments.wgmma import A_DTYPES, D_DTYPES, wgmma_fragment


def wgmma_fragments() -> list[Fragment]:
    accumulators = [
        wgmma_fragment(n, ks[0], "D", dtype)
        for dtype, ks in D_DTYPES.items()
        for n in (INTEGER_N if dtype == "s32" else FLOAT_N)
    ]
    bits = {"tf32": 32, "bf16": 16, "fp16": 16, "b1": 1}
    return accumulators + [wgmma_fragment(64, 256 // bits.get(dtype, 8), "A", dtype) for dtype in A_DTYPES]


def mma_fragments() -> list[Fragment]:
    made = []
    for dtype, shapes in SHAPES.items():
        for shape in shapes:
            made += [mma_fragment(shape, operand, dtype) for operand in "AB"]
            sums = ("f32",) if dtype == "fp4_e2m1" and shape[2] == 64 else ACCUMULATORS[dtype]
            made += [mma_fragment(shape, "D", accumulator) for accumulator in sums]
    made += [mma_fragment((8, 8, 4), operand, "fp16", col) for operand in "AB" for col in (False, True)]
    return made


def matrix_fragments() -> list[Fragment]:
    return [
        matrix_fragment(instruction, count, trans)
        for instruction in ("ldmatrix", "stmatrix")
        for count in COUNTS
        for trans in (False, True)
    ]


def tmem_fragments() -> list[Fragment]:
    repeats = [1, 2, 4, 8, 16, 32]
    return [tmem_fragment(shape, repeat, pack16=pack) for shape in (*TMEM_SHAPES, "16x32bx2") for repeat in repeats
            for pack in (False, True)]  # fmt: skip


EVERY = wgmma_fragments() + mma_fragments() + matrix_fragments() + tmem_fragments()


@pytest.mark.parametrize("fragment", EVERY, ids=[fragment.name for fragment in EVERY])
def test_every_element_is_held_exactly_once(fragment: Fragment) -> None:
    thread, element = fragment.owners()
    assert thread.min() >= 0
    assert thread.size == fragment.threads * fragment.elements
    # Held once each: owners undo the map.
    assert (fragment.row[thread, element] == np.arange(fragment.rows)[None, :, None]).all()
    assert (fragment.column[thread, element] == np.arange(fragment.columns)[None, None, :]).all()


@given(st.sampled_from(EVERY), st.data())
def test_owners_and_slots_agree_with_the_map(fragment: Fragment, data: st.DataObject) -> None:
    thread = data.draw(st.integers(0, fragment.threads - 1))
    element = data.draw(st.integers(0, fragment.elements - 1))
    place = tuple(int(array[thread, element]) for array in (fragment.matrix, fragment.row, fragment.column))
    register, bit = fragment.slot(element)
    assert [owner[place] for owner in fragment.owners()] == [thread, element]
    assert register < fragment.registers
    assert bit + fragment.element_bits <= fragment.register_bits


@pytest.mark.parametrize("n", FLOAT_N)
def test_accumulators_of_wgmma_follow_the_epilogue_formula(n: int) -> None:
    """Any multiple of 8, not only powers of two; half of a thread's values lie in its upper row, half 8 below."""
    fragment = wgmma_fragment(n, 16, "D", "f32")
    assert fragment.registers == n // 2
    for thread in (0, 5, 31, 32, 127):
        row = 16 * (thread // 32) + thread % 32 // 4
        for group in range(n // 8):
            column = 8 * group + 2 * (thread % 4)
            expected = [(row, column), (row, column + 1), (row + 8, column), (row + 8, column + 1)]
            held = zip(fragment.row[thread, 4 * group :], fragment.column[thread, 4 * group :], strict=True)
            assert [(int(r), int(c)) for r, c in held][:4] == expected
    assert sum(int(r) < 8 for r in fragment.row[0]) == n // 4


def test_registers_a_thread_grow_with_n() -> None:
    """Four accumulators a thread is m64n8 only; f16 packs two in one register."""
    assert [wgmma_fragment(n, 16, "D", "f32").registers for n in (8, 64, 256)] == [4, 32, 128]
    assert [wgmma_fragment(n, 16, "D", "fp16").registers for n in (8, 64, 256)] == [2, 16, 64]
    assert all(fragment.registers == 4 for fragment in wgmma_fragments() if " A " in fragment.name)


@pytest.mark.parametrize("row", MMA_SYNC, ids=lambda row: row.mnemonic())
def test_registers_are_those_of_the_instruction_table(row: MmaSync) -> None:
    shape = (row.m, row.n, row.k)
    assert mma_fragment(shape, "A", row.dtype_a).registers == row.a_registers
    assert mma_fragment(shape, "B", row.dtype_b).registers == row.b_registers
    assert mma_fragment(shape, "D", row.dtype_acc).registers == row.accumulator_registers


@pytest.mark.parametrize("row", WGMMA, ids=lambda row: row.mnemonic(row.n[0]))
def test_registers_of_wgmma_are_those_of_the_instruction_table(row: Wgmma) -> None:
    for n in row.n:
        assert wgmma_fragment(n, row.k, "D", row.dtype_acc).registers == row.accumulator_registers(n)
        assert wgmma_fragment(n, row.k, "A", row.dtype_a).columns == row.k


def test_each_warp_of_a_warpgroup_owns_sixteen_rows() -> None:
    for fragment in wgmma_fragments():
        rows = fragment.row.reshape(4, 32, -1)
        assert [(int(warp.min()), int(warp.max())) for warp in rows] == [(16 * w, 16 * w + 15) for w in range(4)]


def isa(shape: tuple[int, int, int], operand: str, bits: int, lane: int, i: int) -> tuple[int, int]:
    """Row and column of element i as PTX ISA §9.7.14.5 prints them, case by case."""
    group, quad = lane >> 2, lane % 4
    if operand == "C":
        return group + 8 * (i >= 2), quad * 2 + (i & 1)
    if operand == "A":
        return {
            ((16, 8, 4), 32): lambda: (group + 8 * (i == 1), quad),
            ((16, 8, 8), 16): lambda: (group + 8 * (i >= 2), quad * 2 + (i & 1)),
            ((16, 8, 8), 32): lambda: (group + 8 * (i in (1, 3)), quad + 4 * (i in (2, 3))),
            ((16, 8, 8), 64): lambda: (group + 8 * (i in (1, 3)), quad + 4 * (i in (2, 3))),
            ((16, 8, 16), 16): lambda: (
                group + 8 * (not (i < 2 or 4 <= i < 6)), quad * 2 + (i & 1) + 8 * (i >= 4)),
            ((16, 8, 16), 64): lambda: (group + 8 * (i % 2), (2 * i if i % 2 == 0 else 2 * i - 2) + quad),
            ((16, 8, 16), 8): lambda: (group + 8 * (i >= 4), quad * 4 + (i & 3)),
            ((16, 8, 32), 8): lambda: (
                group + 8 * (not (i < 4 or 8 <= i < 12)), quad * 4 + (i & 3) + 16 * (i >= 8)),
            ((16, 8, 32), 4): lambda: (group + 8 * (i >= 8), quad * 8 + (i & 7)),
            ((16, 8, 64), 4): lambda: (
                group + 8 * (not (i < 8 or 16 <= i < 24)), quad * 8 + (i & 7) + 32 * (i >= 16)),
            ((16, 8, 128), 1): lambda: (group + 8 * (i >= 32), quad * 32 + (i & 31)),
            ((16, 8, 256), 1): lambda: (
                group + 8 * (not (i < 32 or 64 <= i < 96)), quad * 32 + (i & 31) + 128 * (i >= 64)),
            ((8, 8, 4), 64): lambda: (group, quad),
            ((8, 8, 16), 8): lambda: (group, quad * 4 + i),
        }[shape, bits]()  # fmt: skip
    return {
        ((16, 8, 8), 16): lambda: (quad * 2 + i, group),
        ((16, 8, 8), 32): lambda: (quad + 4 * i, group),
        ((16, 8, 16), 16): lambda: (quad * 2 + (i & 1) + 8 * (i >= 2), group),
        ((16, 8, 16), 64): lambda: (quad + 4 * i, group),
        ((16, 8, 32), 8): lambda: (quad * 4 + (i & 3) + 16 * (i >= 4), group),
        ((16, 8, 64), 4): lambda: (quad * 8 + (i & 7) + 32 * (i >= 8), group),
    }[shape, bits]()


@pytest.mark.parametrize(
    ("shape", "operand", "dtype"),
    [
        ((16, 8, 4), "A", "tf32"), ((16, 8, 8), "A", "bf16"), ((16, 8, 8), "A", "tf32"), ((16, 8, 8), "A", "f64"),
        ((16, 8, 16), "A", "fp16"), ((16, 8, 16), "A", "f64"), ((16, 8, 16), "A", "fp8_e4m3"),
        ((16, 8, 32), "A", "int8"), ((16, 8, 32), "A", "int4"), ((16, 8, 64), "A", "fp4_e2m1"),
        ((16, 8, 128), "A", "b1"), ((16, 8, 256), "A", "b1"), ((8, 8, 4), "A", "f64"), ((8, 8, 16), "A", "uint8"),
        ((16, 8, 8), "B", "bf16"), ((16, 8, 8), "B", "tf32"), ((16, 8, 16), "B", "bf16"), ((16, 8, 16), "B", "f64"),
        ((16, 8, 32), "B", "fp8_e5m2"), ((16, 8, 64), "B", "uint4"),
        ((16, 8, 16), "C", "f32"), ((16, 8, 8), "C", "f64"), ((16, 8, 16), "C", "fp16"), ((16, 8, 32), "C", "s32"),
    ],
)  # fmt: skip
def test_mma_sync_follows_the_printed_formulas(shape: tuple[int, int, int], operand: str, dtype: str) -> None:
    fragment = mma_fragment(shape, operand, dtype)
    for lane in range(32):
        for i in range(fragment.elements):
            expected = isa(shape, operand, fragment.element_bits, lane, i)
            assert (int(fragment.row[lane, i]), int(fragment.column[lane, i])) == expected


def test_a_padded_fp4_takes_a_byte_and_a_packed_one_half() -> None:
    assert mma_fragment((16, 8, 32), "A", "fp4_e2m1").element_bits == 8
    assert mma_fragment((16, 8, 64), "A", "fp4_e2m1").element_bits == 4


def test_m8n8k4_computes_four_products_in_quad_pairs() -> None:
    fragment = mma_fragment((8, 8, 4), "D", "f32")
    assert fragment.matrices == 4
    assert [int(fragment.matrix[lane, 0]) for lane in (0, 3, 4, 15, 16, 19, 20, 31)] == [0, 0, 1, 3, 0, 0, 1, 3]
    # Lane 17 = quad pair 0, second quad, lane 1 of it: rows 5 and 7.
    assert sorted({int(row) for row in fragment.row[17]}) == [5, 7]


def test_a_of_wgmma_is_four_warps_of_a_of_mma_sync() -> None:
    for k, dtype in ((8, "tf32"), (16, "bf16"), (32, "int8")):
        whole, one = wgmma_fragment(64, k, "A", dtype), mma_fragment((16, 8, k), "A", dtype)
        for warp in range(4):
            rows = whole.row[32 * warp : 32 * warp + 32] - 16 * warp
            assert (rows == one.row).all()
            assert (whole.column[32 * warp : 32 * warp + 32] == one.column).all()


def test_ldmatrix_x4_of_a_16_by_16_block_gives_a_of_mma_sync() -> None:
    """Lanes address rows 0-15 of the left half, then of the right: matrices go down first."""
    moved, wanted = matrix_fragment("ldmatrix", 4, False), mma_fragment((16, 8, 16), "A", "bf16")
    assert (moved.row + 8 * (moved.matrix % 2) == wanted.row).all()
    assert (moved.column + 8 * (moved.matrix // 2) == wanted.column).all()


def test_ldmatrix_trans_of_k_by_n_rows_gives_b_of_mma_sync() -> None:
    moved, wanted = matrix_fragment("ldmatrix", 2, True), mma_fragment((16, 8, 16), "B", "bf16")
    assert (moved.row + 8 * moved.matrix == wanted.row).all()
    assert (moved.column == wanted.column).all()


@pytest.mark.parametrize(("count", "moved_bytes"), [(1, 128), (2, 256), (4, 512)])
def test_a_warp_moves_128_bytes_of_each_matrix(count: int, moved_bytes: int) -> None:
    fragment = matrix_fragment("ldmatrix", count, False)
    assert fragment.threads * fragment.registers * 4 == moved_bytes


def test_sixteen_stmatrix_x4_move_a_16_bit_accumulator_of_n_256() -> None:
    """A warp's 16 x 256 are 64 matrices; f32 must be narrowed first, stmatrix moves 16-bit elements only."""
    accumulator = wgmma_fragment(256, 16, "D", "fp16")
    assert accumulator.registers // matrix_fragment("stmatrix", 4, False).registers == 16
    assert matrix_fragment("stmatrix", 4, False).element_bits == 16


def test_tensor_memory_shapes_start_as_in_the_figures() -> None:
    first = {shape: tmem_fragment(shape, 1) for shape in TMEM_SHAPES}
    assert [(int(first["32x32b"].row[t, 0]), int(first["32x32b"].column[t, 0])) for t in (0, 31)] == [(0, 0), (31, 0)]
    # 16x256b is the accumulator fragment of mma.sync.
    accumulator = mma_fragment((16, 8, 16), "D", "f32")
    assert (first["16x256b"].row == accumulator.row).all()
    assert (first["16x256b"].column == accumulator.column).all()
    assert [(int(first["16x64b"].row[t, 0]), int(first["16x64b"].column[t, 0])) for t in range(5)] == [
        (0, 0), (8, 0), (0, 1), (8, 1), (1, 0)]  # fmt: skip
    assert [int(row) for row in first["16x128b"].row[5]] == [1, 9]


def test_neighbouring_registers_of_an_accumulator_are_not_neighbouring_rows() -> None:
    """A 16-byte store of four of them would need a shuffle: the second pair lies eight rows below."""
    fragment = wgmma_fragment(64, 16, "D", "f32")
    assert [(int(fragment.row[0, i]), int(fragment.column[0, i])) for i in range(4)] == [(0, 0), (0, 1), (8, 0), (8, 1)]


def test_the_split_access_reaches_further_columns_with_its_upper_lanes() -> None:
    fragment = tmem_fragment("16x32bx2", 4, split=32)
    assert (int(fragment.row[16, 0]), int(fragment.column[16, 0])) == (0, 32)
    assert fragment.columns == 36


@pytest.mark.parametrize(
    ("name", "operand", "dtype", "said"),
    [
        ("wgmma.m64n60k16", "D", "f32", "n = 60 .*nearest is 56"),
        ("wgmma.m64n40k32", "D", "s32", "n = 40 .*8, 16, 24, 32, 48.*nearest is 32"),
        ("wgmma.m64n264k16", "D", "f32", "n = 264 .*nearest is 256"),
        ("wgmma.m128n64k16", "D", "f32", "m = 128"),
        ("wgmma.m64n64k16", "D", "bf16", "'bf16'.*f32, fp16, s32"),
        ("wgmma.m64n64k32", "A", "bf16", "k is 16"),
        ("wgmma.m64n64k8", "D", "fp16", "k is 16 or 32"),
        ("wgmma.m64n64k16", "B", "bf16", "shared memory"),
        ("wgmma.m64n64k16", "E", "bf16", "'E'"),
        ("wgmma.m64n64k16", "A", "f32", "'f32'"),
        ("mma.m16n8k17", "A", "bf16", "m16n8k17: use one of m8n8k4"),
        ("mma.m16n8k16", "A", "int4", "'int4'"),
        ("mma.m16n8k16", "D", "bf16", "'bf16': use one of f32, f64, fp16, s32"),
        ("mma.m16n8k64", "D", "fp16", "'fp16': use one of f32, s32"),
        ("mma.m16n8k16", "X", "bf16", "'X'"),
        ("mma.m16n8k16.col", "A", "bf16", "only m8n8k4"),
        ("ldmatrix.x3", "D", "", "x3"),
        ("ldmatrix.m16n16.x1.trans.b8", "D", "", "8-bit matrix shapes"),
        ("tcgen05.ld.16x512b.x1", "D", "", "'16x512b'"),
        ("tcgen05.ld.16x256b.x64", "D", "", ".x16, .x32$"),
        ("tcgen05.ld.32x32b.x3", "D", "", "has no .x3"),
        ("tcgen05.ld.32x32b.x4.unpack::16b", "D", "", "no fragment here"),
        ("tcgen05.st.32x32b.x4.pack::16b", "D", "", "no fragment here"),
        (f"wgmma.m64n{'8' * 5_000}k16", "D", "f32", "no fragment here"),
        ("mma.m16n8k\u0664", "D", "f32", "no fragment here"),
        ("hmma", "D", "", "'hmma'"),
    ],
)
def test_what_is_not_there_is_told_with_what_is(name: str, operand: str, dtype: str, said: str) -> None:
    with pytest.raises(LayoutError, match=said):
        fragment_named(name, operand, dtype)


@pytest.mark.parametrize(
    ("name", "elements"),
    [("wgmma.mma_async.sync.aligned.m64n8k16", 8), ("mma.sync.aligned.m16n8k16.row", 8), ("stmatrix.x2", 4),
     ("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", 8), ("tcgen05.ld.sync.aligned.16x64b.x2", 2),
     ("stmatrix.sync.aligned.m8n8.x1.shared::cta.b16", 2),
     ("tcgen05.st.sync.aligned.32x32b.x4.unpack::16b.b32", 8)],
)  # fmt: skip
def test_ptx_spellings_are_understood(name: str, elements: int) -> None:
    assert fragment_named(name, "A" if "mma" in name else "D").elements == elements


def test_a_store_to_tensor_memory_is_not_called_a_load() -> None:
    assert fragment_named("tcgen05.st.16x64b.x2").name == "tcgen05.st 16x64b.x2"
    assert fragment_named("tcgen05.st.16x64b.x2.unpack::16b").name == "tcgen05.st 16x64b.x2.unpack::16b"
    with pytest.raises(LayoutError, match=r"tcgen05\.st\.16x64b has no \.x3"):
        fragment_named("tcgen05.st.16x64b.x3")


def test_a_split_is_for_the_split_shape_only() -> None:
    with pytest.raises(LayoutError, match="16x32bx2"):
        tmem_fragment("32x32b", 4, split=2)


def test_only_ldmatrix_and_stmatrix_move_matrices() -> None:
    with pytest.raises(LayoutError, match="'movmatrix'"):
        matrix_fragment("movmatrix", 1, False)
