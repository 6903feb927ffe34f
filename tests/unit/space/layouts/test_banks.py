"""Bank conflicts: the known degrees of plain tiles, and none where the tile is swizzled."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from space.errors import LayoutError
from space.layouts.banks import PATTERNS, access, tile_access
from space.layouts.boxes import plan_boxes
from space.layouts.swizzle import SWIZZLES

MATRIX_PATTERNS = [name for name in PATTERNS if name.startswith(("ldmatrix", "stmatrix"))] + ["wgmma", "fragment"]


@pytest.mark.parametrize("pattern", MATRIX_PATTERNS)
@pytest.mark.parametrize("swizzle", ["128B", "64B", "32B", "none"])
def test_matrix_accesses_of_canonical_tiles_are_conflict_free(pattern: str, swizzle: str) -> None:
    plan = plan_boxes(64, 64, "bf16", SWIZZLES[swizzle])
    for column in range(0, 64 - 16 + 1, 16):
        for each in tile_access(plan, pattern, 0, column):
            assert (each.degree, each.wavefronts) == (1, each.ideal_wavefronts)


@pytest.mark.parametrize("pattern", MATRIX_PATTERNS)
@pytest.mark.parametrize(
    ("pitch_elements", "degree"),
    # Rows of 128 B and more put 8 rows into the same four banks; halving the row halves the conflict.
    [(256, 8), (128, 8), (64, 8), (32, 4), (16, 2)],
)
def test_plain_row_major_tiles_conflict_by_known_degrees(pattern: str, pitch_elements: int, degree: int) -> None:
    plan = plan_boxes(64, pitch_elements, "bf16", SWIZZLES["none"], pitch_elements)
    assert {each.degree for each in tile_access(plan, pattern)} == {degree}


def test_swizzling_costs_the_row_by_row_access_nothing() -> None:
    for swizzle, wide in (("128B", None), ("none", 64)):
        (each,) = tile_access(plan_boxes(64, 64, "bf16", SWIZZLES[swizzle], wide), "rows")
        assert (each.degree, each.wavefronts) == (1, 4)


def test_walking_down_a_plain_column_of_128_byte_rows_is_a_32_way_conflict() -> None:
    plain = plan_boxes(64, 64, "bf16", SWIZZLES["none"], 64)
    assert tile_access(plain, "column")[0].degree == 32
    swizzled = plan_boxes(64, 64, "bf16", SWIZZLES["128B"])
    # The chunks of 8 rows lie in 8 different groups of banks: 32 rows share each group four times.
    assert tile_access(swizzled, "column")[0].degree == 4


def test_lanes_that_share_a_wide_element_access_its_two_words() -> None:
    (each,) = tile_access(plan_boxes(8, 16, "f64", SWIZZLES["128B"]), "fragment")
    assert each.addresses[:5] == (0, 4, 8, 12, 128 + 16)
    assert (each.degree, each.wavefronts) == (1, 1)


@pytest.mark.parametrize(("stride", "degree"), [(1, 1), (2, 2), (3, 1), (4, 4), (8, 8), (32, 32), (33, 1)])
def test_strided_words_conflict_by_the_common_divisor_with_32(stride: int, degree: int) -> None:
    assert access([4 * stride * lane for lane in range(32)], 4).degree == degree


def test_lanes_that_ask_for_the_same_word_do_not_conflict() -> None:
    assert access([0] * 32, 4).wavefronts == 1
    assert access([0, 1, 2, 3], 1).wavefronts == 1


@pytest.mark.parametrize(("width", "wavefronts"), [(4, 1), (8, 2), (16, 4)])
def test_wide_accesses_are_served_in_phases(width: int, wavefronts: int) -> None:
    each = access([width * lane for lane in range(32)], width)
    assert (each.wavefronts, each.degree, len(each.phases)) == (wavefronts, 1, wavefronts)


@given(st.lists(st.integers(0, 4095), min_size=1, max_size=32), st.sampled_from([1, 2, 4, 8, 16]))
def test_wavefronts_are_at_least_ideal_and_at_most_one_a_lane_and_word(places: list[int], width: int) -> None:
    each = access([place * width for place in places], width)
    assert 1 <= each.ideal_wavefronts <= each.wavefronts <= len(places) * max(width // 4, 1)
    assert sorted(lane for phase in each.phases for lane in phase.lanes) == list(range(len(places)))


@pytest.mark.parametrize(
    ("pattern", "row", "column", "said"),
    [
        ("ldmatrix.x3", 0, 0, "'ldmatrix.x3' is unknown"),
        ("ldmatrix.x4", 56, 0, "reaches row 71"),
        ("ldmatrix.x4", 0, 56, "column 71"),
        ("ldmatrix.x4", 0, 4, "multiple of 8"),
        ("wgmma", -8, 0, "from row -8"),
        ("wgmma", 1, 0, "reaches row 64, column 15 of a tile of 64 x 64"),
        ("column", 33, 0, "reaches row 64"),
        ("column", 0, 2**66, "reaches row 31, column 73786976294838206465 of a tile of 64 x 64"),
        ("column", 0, 1, "at byte 2, not a multiple of the 4 B of column: use a multiple of 2"),
    ],
)
def test_accesses_outside_the_tile_are_told(pattern: str, row: int, column: int, said: str) -> None:
    with pytest.raises(LayoutError, match=said):
        tile_access(plan_boxes(64, 64, "bf16", SWIZZLES["128B"]), pattern, row, column)


@pytest.mark.parametrize(
    ("places", "width", "said"),
    [([0], 3, "width = 3"), ([2], 4, "address 2"), ([-4], 4, "address -4 .*0 or a higher multiple of 4"),
     ([], 4, "0 addr"), ([0] * 33, 4, "33")],
)  # fmt: skip
def test_what_no_warp_asks_for_is_told(places: list[int], width: int, said: str) -> None:
    with pytest.raises(LayoutError, match=said):
        access(places, width)
