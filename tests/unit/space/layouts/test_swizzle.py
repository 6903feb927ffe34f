"""Swizzles: their golden pictures, that they undo themselves, and where simpler formulas stop being right."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from space.errors import LayoutError
from space.layouts.swizzle import SWIZZLES, Swizzle, swizzle_named

modes = st.sampled_from(sorted(SWIZZLES.values(), key=lambda mode: mode.name))

#: 16-byte column that holds logical column 0, by row of the span; PTX ISA, figures of "Shared Memory Matrix Layout".
FIRST_COLUMN = {
    "128B": [0, 1, 2, 3, 4, 5, 6, 7],
    "64B": [0, 0, 1, 1, 2, 2, 3, 3],
    "32B": [0, 0, 0, 0, 1, 1, 1, 1],
}
PATTERN_BYTES = {"128B": 1024, "64B": 512, "32B": 256, "none": 16, "128B_atom32B": 512}


@given(modes, st.integers(0, 2**18 - 1))
def test_a_swizzle_undoes_itself(mode: Swizzle, address: int) -> None:
    assert mode.apply(mode.apply(address)) == address


@given(modes)
def test_a_swizzle_permutes_the_bytes_of_each_pattern(mode: Swizzle) -> None:
    addresses = np.arange(4 * mode.pattern_bytes, dtype=np.int64)
    for start in range(0, len(addresses), mode.pattern_bytes):
        moved = mode.apply(addresses[start : start + mode.pattern_bytes])
        assert sorted(moved) == list(range(start, start + mode.pattern_bytes))


@given(modes, st.integers(0, 2**18 - 1))
def test_bytes_of_a_chunk_and_of_a_128_byte_line_stay_together(mode: Swizzle, address: int) -> None:
    assert mode.apply(address) % mode.chunk_bytes == address % mode.chunk_bytes
    assert mode.apply(address) // 128 == address // 128


@given(modes, st.integers(0, 2**14), st.integers(0, 63))
def test_the_pattern_repeats_after_1024_512_256_bytes(mode: Swizzle, address: int, patterns: int) -> None:
    """A document said 128 bytes for all modes."""
    assert mode.pattern_bytes == PATTERN_BYTES[mode.name]
    shift = patterns * mode.pattern_bytes
    assert mode.apply(address + shift) == mode.apply(address) + shift


@pytest.mark.parametrize("name", FIRST_COLUMN)
def test_the_first_column_walks_as_in_the_figures(name: str) -> None:
    mode = SWIZZLES[name]
    rows = np.arange(len(FIRST_COLUMN[name]), dtype=np.int64)
    assert list(mode.apply(rows * mode.span_bytes) % mode.span_bytes // 16) == FIRST_COLUMN[name]


def test_columns_are_xored_with_rows_in_chunks_and_modulo_eight_only() -> None:
    """`column xor row` holds for 16-byte columns of 128B rows, and with the row taken modulo 8."""
    mode = SWIZZLES["128B"]
    for row in range(32):
        for chunk in range(8):
            moved = mode.apply(row * 128 + chunk * 16)
            assert moved == row * 128 + (chunk ^ row % 8) * 16
    # An element is two bytes: XORing its own column with the row would tear chunks apart.
    assert mode.apply(1 * 128 + 3 * 2) // 2 % 64 != 3 ^ 1


def test_a_mask_of_the_offset_is_right_only_where_the_tile_is_aligned() -> None:
    """Hardware XORs bits of the absolute address; a mask made from the offset needs a base of 1,024."""

    def masked(base: int, offset: int) -> int:
        return (base + offset) ^ ((offset >> 7 & 7) << 4)

    mode = SWIZZLES["128B"]
    offsets = range(0, 2048, 16)
    assert all(masked(4096, offset) == mode.apply(4096 + offset) for offset in offsets)
    assert any(masked(4096 + 128, offset) != mode.apply(4096 + 128 + offset) for offset in offsets)


def test_base_offset_counts_128_byte_lines_of_an_unaligned_pattern() -> None:
    mode = SWIZZLES["128B"]
    assert [mode.base_offset(start) for start in (0, 1024, 1024 + 128, 1024 + 7 * 128)] == [0, 0, 1, 7]
    assert SWIZZLES["64B"].base_offset(512) == 0
    assert SWIZZLES["none"].base_offset(128) == 0


@pytest.mark.parametrize("name", ["128B", "128b", "128", " 64B ", "NONE", "128B_atom32B"])
def test_modes_are_found_by_any_spelling(name: str) -> None:
    assert swizzle_named(name).name.lower().startswith(name.strip().lower()[:2])


def test_an_unknown_mode_is_named_with_the_choice() -> None:
    with pytest.raises(LayoutError, match=r"'256B'.*128B, 64B, 32B, none"):
        swizzle_named("256B")
