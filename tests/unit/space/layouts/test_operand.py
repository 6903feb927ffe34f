"""Operand tiles: what a descriptor makes the hardware read is what TMA has written, in every canonical layout."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from space.elements import element_bytes
from space.errors import LayoutError
from space.instructions.operand import Major
from space.layouts.operand import OperandTile, Strides
from space.layouts.swizzle import SWIZZLES
from tests.descriptor_reads import read_address

#: 128 (M or N) x 64 (K) of bf16: leading and stride byte offset. CUTLASS, canonical layouts, times 16 B.
GOLDEN: list[tuple[Major, str, int, int]] = [
    # K-major swizzled: the leading field is not read; 8 rows of the span.
    ("k", "128B", 16, 8 * 128),
    ("k", "64B", 16, 8 * 64),
    ("k", "32B", 16, 8 * 32),
    # K-major plain: 16-byte columns of 128 rows; 8 rows of 16 B.
    ("k", "none", 128 * 16, 8 * 16),
    # MN-major swizzled: from span to span (64 rows of K each); 8 rows of K.
    ("mn", "128B", 64 * 128, 8 * 128),
    ("mn", "64B", 64 * 64, 8 * 64),
    ("mn", "32B", 64 * 32, 8 * 32),
    # MN-major plain: the roles swap.
    ("mn", "none", 8 * 16, 64 * 16),
]


@pytest.mark.parametrize(("major", "swizzle", "leading", "stride"), GOLDEN)
def test_golden_strides(major: Major, swizzle: str, leading: int, stride: int) -> None:
    tile = OperandTile(128, 64, "bf16", major, SWIZZLES[swizzle])
    assert tile.strides == Strides(leading, stride)
    descriptor = tile.wgmma_descriptor(4096)
    assert (descriptor.leading_byte_offset, descriptor.stride_byte_offset) == (leading, stride)
    assert tile.tcgen05_descriptor(4096).leading_byte_offset == leading


@given(
    st.integers(1, 32), st.integers(1, 4), st.sampled_from(["bf16", "fp8_e4m3", "tf32"]), st.sampled_from(["k", "mn"]),
    st.sampled_from(["128B", "64B", "32B", "none"]), st.integers(0, 3), st.integers(0, 3), st.integers(0, 31),
)  # fmt: skip
def test_the_hardware_reads_what_tma_wrote(
    eights: int, steps: int, dtype: str, major: Major, name: str, at_mn: int, at_k: int, at: int
) -> None:
    """One instruction's block of 32 bytes of K, from any start, reads each element where it lies."""
    assume((major, dtype) != ("mn", "tf32"))
    swizzle, size = SWIZZLES[name], element_bytes(dtype)
    span, instruction_k = swizzle.span_bytes // size, 32 // size
    mn, k = 8 * eights, max(span, instruction_k) * steps
    if major == "mn":
        mn, k = span * steps, max(8, instruction_k) * eights
    assume(mn * k * size < 2**18)
    tile = OperandTile(mn, k, dtype, major, swizzle)
    first_mn = (8 * at if major == "k" else span * at_mn) % mn
    first_k = instruction_k * at_k % k
    assume(first_k % 8 == 0 or major == "k")
    address = 8 * tile.plan.alignment_bytes
    descriptor = tile.tcgen05_descriptor(address, first_mn, first_k)
    rows, ks = np.indices((mn - first_mn, instruction_k), dtype=np.int64)
    read = read_address(descriptor, major, dtype, rows, ks)
    assert (read == address + tile.offset(rows + first_mn, ks + first_k)).all()


def test_a_step_along_k_inside_a_128_byte_line_adds_32_bytes_and_no_base_offset() -> None:
    tile = OperandTile(128, 64, "bf16", "k", SWIZZLES["128B"])
    starts = [tile.wgmma_descriptor(0, 0, k) for k in (0, 16, 32, 48)]
    assert [(each.start_address, each.base_offset) for each in starts] == [(0, 0), (32, 0), (64, 0), (96, 0)]


def test_a_descriptor_may_start_in_the_middle_of_a_step_along_k() -> None:
    tile = OperandTile(64, 128, "bf16", "k", SWIZZLES["128B"])
    assert tile.wgmma_descriptor(0, 8, 72).start_address == 64 * 128 + 8 * 128 + 16


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: OperandTile(60, 64, "bf16", "k", SWIZZLES["128B"]), "mn = 60 .*use 64"),
        (lambda: OperandTile(64, 20, "bf16", "mn", SWIZZLES["128B"]), "k = 20 .*use 24"),
        (lambda: OperandTile(64, 32, "bf16", "k", SWIZZLES["128B"]), "use 64 columns"),
        (lambda: OperandTile(64, 64, "bf16", "x", SWIZZLES["128B"]), "'x' is unknown"),  # type: ignore[arg-type]
        (lambda: OperandTile(64, 64, "tf32", "k", SWIZZLES["128B_atom32B"]), "keeps 32 B together"),
        (lambda: OperandTile(128, 64, "int8", "mn", SWIZZLES["128B"]).wgmma_descriptor(), "K-major only"),
        (lambda: OperandTile(64, 64, "bf16", "k", SWIZZLES["128B"]).wgmma_descriptor(128), "inside a swizzle pattern"),
        (lambda: OperandTile(64, 64, "bf16", "k", SWIZZLES["128B"]).wgmma_descriptor(0, 4), "mn = 4"),
        (lambda: OperandTile(64, 64, "bf16", "k", SWIZZLES["128B"]).wgmma_descriptor(0, 0, 64), "k = 64"),
        (lambda: OperandTile(128, 64, "bf16", "mn", SWIZZLES["128B"]).wgmma_descriptor(0, 8), "multiple of 64"),
        (lambda: OperandTile(64, 128, "bf16", "k", SWIZZLES["128B"]).wgmma_descriptor(0, 0, 56),
         "16 bf16, past the end of the swizzle span at k = 64; start at 48"),
        (lambda: OperandTile(64, 32, "fp8_e4m3", "k", SWIZZLES["none"]).wgmma_descriptor(0, 0, 16),
         "32 fp8_e4m3, past the end of the tile at k = 32; start at 0"),
        (lambda: OperandTile(64, 8, "bf16", "mn", SWIZZLES["128B"]).wgmma_descriptor(), "give the tile 16 of K"),
        (lambda: OperandTile(64, 64, "tf32", "mn", SWIZZLES["128B"]), "only with 128B_atom32B"),
    ],
)  # fmt: skip
def test_what_has_no_canonical_layout_is_refused(make: object, said: str) -> None:
    with pytest.raises(LayoutError, match=said):
        make()  # type: ignore[operator]
