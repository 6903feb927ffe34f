"""Mistakes that widely read texts make about these instructions, each with the version that holds.

The texts: a talk on WGMMA, pyptx's pages on fragments and on tiles, a programming guide to CuTe's WGMMA, and the
TIRx chapter on operand layouts. Every test's first line is what the text says.
"""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.instruction_ptx import wgmma_ptx
from space.arch import ARCHS
from space.devices import reference_profile
from space.errors import LayoutError
from space.explain import explain
from space.family import family_named
from space.instructions import wgmma
from space.instructions.operand import majors_of
from space.instructions.tcgen05 import tcgen05_for
from space.kinds.gemm import DTYPES, Gemm
from space.layouts.banks import access
from space.layouts.boxes import plan_boxes
from space.layouts.descriptor import WgmmaDescriptor
from space.layouts.fragments.matrix_moves import matrix_fragment
from space.layouts.fragments.scale_factors import scale_factors
from space.layouts.fragments.wgmma import wgmma_fragment
from space.layouts.operand import OperandTile
from space.layouts.swizzle import SWIZZLES
from space.problem import DTYPE_BYTES
from tests.descriptor_reads import read_address
from tests.tensor_maps import TensorMap

FAMILY = family_named("sm90_wgmma")
SQUARE = Gemm.of(4096, 4096, 4096)


def row(dtype_a: str, dtype_b: str = "", dtype_acc: str = "f32") -> wgmma.Wgmma:
    """A row of the table that is there."""
    found = wgmma.wgmma_for(dtype_a, dtype_b or dtype_a, dtype_acc)
    assert found is not None
    return found


class TestTalkOnWgmma:
    def test_the_swizzle_field_of_a_descriptor(self) -> None:
        # "bits 61-63": those are tcgen05's. 3 << 61, meant as 32B, reads as 128B with a reserved bit set.
        assert WgmmaDescriptor(0, 0, 0, SWIZZLES["32B"]).encode() == 3 << 62
        assert (3 << 61) >> 62 == 1 == WgmmaDescriptor(0, 0, 0, SWIZZLES["128B"]).encode() >> 62
        with pytest.raises(LayoutError, match="reserved bit 61"):
            WgmmaDescriptor.decode(3 << 61)

    def test_accumulators_of_a_thread(self) -> None:
        # "4 registers per thread", as the reason why M is 64: only N = 8 takes 4, and N goes to 256.
        assert [row("bf16").accumulator_registers(n) for n in (8, 256)] == [4, 128]
        assert wgmma.M == 4 * 16

    def test_what_executes_and_awaits_one_instruction(self) -> None:
        # ".sync is an SM-wide barrier": it is the 128 threads of the warpgroup.
        assert wgmma.WARPGROUP_THREADS == 128 == wgmma_fragment(64, 16, "D", "f32").threads

    def test_how_results_are_awaited(self) -> None:
        # "wgmma.fence makes the writes visible": it orders registers before; after come commit_group and wait_group.
        places = [wgmma_ptx(row("bf16"), 64).index(word) for word in ("fence", "mma_async", "commit", "wait_group")]
        assert places == sorted(places)

    @pytest.mark.parametrize("dtype", ["bf16", "fp16", "tf32", "fp8_e4m3", "fp8_e5m2"])
    def test_steps_of_n(self, dtype: str) -> None:
        # "multiples of 8 or 16 by memory block size": every multiple of 8 for floating point of any width.
        assert row(dtype).n == tuple(range(8, 257, 8))

    def test_the_end_of_the_integer_list(self) -> None:
        # The list stops at 224.
        assert row("int8", dtype_acc="s32").n[-3:] == (224, 240, 256)

    @pytest.mark.parametrize(("name", "repeats"), [("128B", 1024), ("64B", 512), ("32B", 256)])
    def test_where_a_swizzle_pattern_repeats(self, name: str, repeats: int) -> None:
        # "repeats every 128 B". The base offset is bits 7 to 9 of where a misaligned pattern begins.
        swizzle = SWIZZLES[name]
        assert swizzle.pattern_bytes == repeats
        assert swizzle.base_offset(3 * repeats) == 0
        assert swizzle.base_offset(3 * repeats + 128) == (3 * repeats + 128) // 128 % 8

    def test_what_the_two_offsets_of_a_descriptor_step_over(self) -> None:
        # LBO is "the K stride", "between matrices": it depends on major mode and swizzle.
        def strides(major: str, swizzle: str) -> tuple[int, int]:
            tile = OperandTile(128, 64, "bf16", major, SWIZZLES[swizzle])  # type: ignore[arg-type]
            return tile.strides.leading_bytes, tile.strides.stride_bytes

        # Swizzled K-major: LBO is not read, SBO is 8 rows of 128 B.
        assert strides("k", "128B")[1] == 8 * 128
        # Swizzled MN-major: LBO goes from one 64-wide span (64 rows of K, 128 B each) to the next.
        assert strides("mn", "128B") == (64 * 128, 8 * 128)
        # Without swizzle the roles swap between the major modes.
        across, down = strides("k", "none")
        assert (across, down) == (128 * 16, 8 * 16)
        assert strides("mn", "none") == (8 * 16, 64 * 16)

    @pytest.mark.parametrize(("count", "moved"), [(1, 128), (2, 256), (4, 512)])
    def test_bytes_of_ldmatrix(self, count: int, moved: int) -> None:
        # "x4 is 1,024 B, x2 is 512 B": half of it, of a whole warp.
        fragment = matrix_fragment("ldmatrix", count, trans=False)
        assert fragment.threads * fragment.elements * 2 == moved

    def test_which_addresses_ldmatrix_takes(self) -> None:
        # "the unswizzled ones": it reads where the swizzle has put the rows, and only there free of conflicts.
        plan = plan_boxes(64, 64, "bf16", SWIZZLES["128B"])
        rows = np.arange(8, dtype=np.int64)
        swizzled = plan.offset(rows, np.full(8, 8))
        assert access([int(address) for address in swizzled], 16).degree == 1
        assert access([128 * int(place) + 16 for place in rows], 16).degree == 8

    def test_the_xor_acts_on_the_absolute_address(self) -> None:
        # mask = (offset / 128 & 7) * 16 before the base is added: right for an aligned base alone.
        swizzle, offset = SWIZZLES["128B"], 5 * 128 + 32
        assert swizzle.apply(2048 + offset) == 2048 + (offset ^ (offset // 128 & 7) * 16)
        assert swizzle.apply(128 + offset) != 128 + swizzle.apply(offset)

    def test_the_name_of_the_instruction(self) -> None:
        # "wmma.mma_async".
        assert all(entry.mnemonic(64).startswith("wgmma.mma_async.sync.aligned.") for entry in wgmma.WGMMA)

    def test_who_has_ldmatrix_of_bytes(self) -> None:
        # "only for Blackwell": with the suffix; the tests against the compiler refuse it on plain sm_100 and sm_120.
        assert [name for name, arch in ARCHS.items() if "matrix_b8" in arch.features] == [
            "sm_100a", "sm_103a", "sm_120a", "sm_121a",
        ]  # fmt: skip

    def test_how_many_stmatrix_a_warp_needs(self) -> None:
        # "16 or 32 by width of the accumulator": stmatrix moves 16 bits only, so 16 for N = 256 of a narrowed C.
        fragment = matrix_fragment("stmatrix", 4, trans=False)
        assert 16 * 256 // (fragment.threads * fragment.elements) == 16

    def test_registers_of_a(self) -> None:
        # "wgmma can skip loading registers": with A from shared memory; from registers it takes 4 a thread.
        assert {wgmma_fragment(64, entry.k, "A", entry.dtype_a).registers for entry in wgmma.WGMMA} == {4}
        assert wgmma.A_REGISTERS == 4


class TestPyptxFragments:
    def test_which_tile_n_there_are(self) -> None:
        # "tile_n must be a power of 2".
        assert {24, 96, 192, 200} <= set(row("bf16").n)

    def test_rows_of_a_thread(self) -> None:
        # "Eight at frag_row, eight at frag_row + 8" of 32 accumulators: sixteen each.
        held = wgmma_fragment(64, 16, "D", "f32")
        assert held.elements == 32
        assert np.unique(held.row[0], return_counts=True)[1].tolist() == [16, 16]
        assert np.ptp(held.row[0]) == 8

    @pytest.mark.parametrize("thread", [0, 31, 32, 100, 127])
    def test_the_lane_in_an_address_of_tensor_memory(self, thread: int) -> None:
        # "the low bit of the lane is held elsewhere": the mask leaves the first lane of the thread's warp, whole.
        assert (thread << 16) & 0x3E00000 == (thread // 32 * 32) << 16

    def test_what_one_wide_store_may_hold(self) -> None:
        # "v4 stores across row pairs": registers 0 to 3 are two rows, 8 apart; only pairs are neighbours.
        held = wgmma_fragment(64, 16, "D", "f32")
        assert held.row[0, :4].tolist() == [0, 0, 8, 8]
        assert held.column[0, :4].tolist() == [0, 1, 0, 1]

    def test_rows_of_128_bytes_may_take_another_swizzle(self) -> None:
        # "the row's width decides the swizzle".
        for name in ("128B", "64B", "32B"):
            assert plan_boxes(128, 64, "bf16", SWIZZLES[name]).columns == 64


class TestPyptxTiles:
    def test_the_swizzle_of_32_byte_rows(self) -> None:
        # A (64, 16) bf16 tile "with 128B".
        assert plan_boxes(64, 16, "bf16", SWIZZLES["32B"]).boxes[0].columns == 16
        with pytest.raises(LayoutError, match="128B"):
            plan_boxes(64, 16, "bf16", SWIZZLES["128B"])

    def test_128b_is_not_required_for_wide_rows(self) -> None:
        # "TMA_128B required".
        tensor = TensorMap(0, 2, (4096, 4096), (8192,), (32, 128), 64)
        assert tensor.broken() == ()

    @pytest.mark.parametrize(
        "change",
        [
            {"address": 8},
            {"strides_bytes": (8200,)},
            {"box": (64, 257)},
            {"box": (128, 128)},
            # The one that the page has: the inner box.
            {"box": (4, 128), "swizzle_bytes": 0},
        ],
    )
    def test_what_else_tma_asks(self, change: dict[str, object]) -> None:
        # Alignment of the inner box only: also of address and strides, a box of 256, and the swizzle's span.
        operand = {"address": 0, "element_bytes": 2, "extents": (4096, 4096), "strides_bytes": (8192,),
                   "box": (64, 128), "swizzle_bytes": 128}  # fmt: skip
        assert len(TensorMap(**operand | change).broken()) == 1  # type: ignore[arg-type]

    def test_the_default_box(self) -> None:
        # "the full tensor": illegal above 256, so that a taller tile is cut.
        assert TensorMap(0, 2, (64, 512), (128,), (64, 512), 128).broken()
        assert [box.rows for box in plan_boxes(512, 64, "bf16", SWIZZLES["128B"]).boxes] == [256, 256]

    def test_outputs_by_tma(self) -> None:
        # "never via TMA".
        assert "tma" in FAMILY.knob_named["epilogue"].domain

    def test_ranks(self) -> None:
        # "rank 2 in every example": K of several spans comes in one box of rank 3, (span, rows, spans).
        assert TensorMap(0, 2, (64, 4096, 64), (8192, 128), (64, 128, 2), 128).broken() == ()

    def test_threads_of_two_consumers(self) -> None:
        # "256 for two warpgroups": with the producer 384.
        assert FAMILY.derive(SQUARE, FAMILY.config({"consumer_warpgroups": 2}))["threads"] == 384

    @pytest.mark.parametrize("name", ["128B", "64B", "32B", "none"])
    def test_why_wgmma_reads_what_tma_wrote(self, name: str) -> None:
        # "two permutations compose to the identity": both go through the same XOR of the address.
        tile = OperandTile(64, 64, "bf16", "k", SWIZZLES[name])
        mn, k = np.indices((64, 16), dtype=np.int64)
        read = read_address(tile.wgmma_descriptor(), "k", "bf16", mn, k)
        assert (read == tile.offset(mn, k)).all()


class TestCuteGuide:
    def test_the_steps_of_n_of_integers(self) -> None:
        # "steps of 8" for all types.
        assert 40 not in row("int8", dtype_acc="s32").n
        assert 40 in row("fp8_e4m3").n

    def test_the_smallest_n(self) -> None:
        # "64 x {64..256}".
        assert min(row("bf16").n) == 8

    @pytest.mark.parametrize(("dtype", "tile_k"), [("fp16", 64), ("fp8_e4m3", 128)])
    def test_tile_k_of_the_example(self, dtype: str, tile_k: int) -> None:
        # "tile K must be 64": four instructions, which are 64 of 16-bit and 128 of 8-bit elements.
        assert 4 * row(dtype).k == tile_k

    def test_types_that_the_dsl_leaves_out(self) -> None:
        # No tf32, and its example takes no bf16; the instruction has both.
        assert row("tf32").k == 8
        assert row("bf16").majors_b == ("k", "mn")

    def test_register_a_leaves_b_alone_to_be_transposed(self) -> None:
        # The two major modes are immediates of shared-memory operands; A in registers has none.
        assert ", p, 1, 1, 0;" in wgmma_ptx(row("bf16"), 64, a_in_registers=True)
        assert ", p, 1, 1, 0, 0;" in wgmma_ptx(row("bf16"), 64)


class TestTirxChapter:
    def test_the_granularity_of_the_xor(self) -> None:
        # "physical column = logical column xor row": of 16-byte chunks, and of the row modulo 8.
        plan = plan_boxes(16, 64, "bf16", SWIZZLES["128B"])
        for row_, column in ((1, 0), (3, 13), (9, 63), (15, 8)):
            chunk, within = divmod(column * 2, 16)
            assert plan.offset(row_, column) == row_ * 128 + (chunk ^ row_ % 8) * 16 + within

    def test_one_stride_along_k_and_one_along_m(self) -> None:
        # Of a swizzled K-major tile neither goes along K: the next K of an instruction is 32 B on, inside the span.
        tile = OperandTile(64, 64, "bf16", "k", SWIZZLES["128B"])
        assert tile.start(0, 16) == 32
        assert tile.wgmma_descriptor(k=16).base_offset == 0

    def test_where_scale_factors_lie(self) -> None:
        # "S[(32, n) : (1@TLane, 1@TCol)]" for 128 rows: rows 32 apart lie in neighbouring columns of the same lane.
        held = scale_factors("4X", 128)
        assert held.lane[37, 0].tolist() == [5, 37, 69, 101]
        assert held.column[[5, 37, 69, 101], 0, 0].tolist() == [0, 1, 2, 3]
        assert held.byte[5, :, 0].tolist() == [0, 1, 2, 3]

    def test_a_from_tensor_memory_narrows_n(self) -> None:
        # "some modes can read A from tensor memory", as if N stayed free.
        one = tcgen05_for("bf16", "bf16", "f32")[0]
        two = tcgen05_for("bf16", "bf16", "f32", cta_group=2)[0]
        assert (one.n_of(128)[0], one.n_of(128, a_in_tmem=True)[0], two.n_of(256, a_in_tmem=True)[0]) == (8, 16, 32)


class TestPyptxSpecification:
    def test_n_depends_on_the_type(self) -> None:
        # Its table lists N by K alone, so that s8 with N = 40 passes; fp8 has the same K of 32.
        assert row("fp8_e4m3").k == row("int8", dtype_acc="s32").k == 32
        assert set(row("fp8_e4m3").n) - set(row("int8", dtype_acc="s32").n) == {*range(40, 257, 16)}

    def test_consumer_blackwell(self) -> None:
        # "no TMA" on sm_120, "sm_120a is not a target".
        assert "tma" in ARCHS["sm_120a"].features

    def test_hopper_kernels_on_b200(self) -> None:
        # Its support table has wgmma kernels there.
        knobs = FAMILY.config({})
        said = explain(FAMILY, SQUARE, knobs, reference_profile("sm_100a"))
        assert "arch.wgmma" in [entry.rule for entry in said.broken]

    def test_eight_bit_layouts(self) -> None:
        # Layouts that wgmma takes of 8- and 32-bit types: nt alone.
        for word, (a, b, _, acc) in DTYPES.items():
            entry = wgmma.wgmma_for(a, b, acc)
            assert entry is not None, word
            taken = [layout for layout in ("nt", "nn", "tn", "tt")
                     if majors_of(layout)[0] in entry.majors_a and majors_of(layout)[1] in entry.majors_b]  # fmt: skip
            assert (taken == ["nt"]) == (DTYPE_BYTES[a] != 2)
