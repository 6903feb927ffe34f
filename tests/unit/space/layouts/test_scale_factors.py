"""Scale factors in tensor memory: one byte each, copied to four partitions, where the descriptor says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from space.errors import LayoutError
from space.layouts.fragments.scale_factors import VECTORS, scale_factors


@given(st.sampled_from(sorted(VECTORS)), st.integers(1, 32), st.data())
def test_every_factor_has_a_byte_of_its_own_in_each_partition(vector: str, eights: int, data: st.DataObject) -> None:
    start = data.draw(st.sampled_from(VECTORS[vector][1]))
    made = scale_factors(vector, 8 * eights, start)
    for copy in range(4):
        lane, column, byte = (array[:, :, copy] for array in (made.lane, made.column, made.byte))
        assert (lane // 32 == copy).all()
        assert len(np.unique(np.stack([lane, column, byte]).reshape(3, -1), axis=1).T) == made.rows * VECTORS[vector][0]
        assert byte.max() <= 3
    assert made.columns == -(-made.rows // 32)


def test_golden_places() -> None:
    made = scale_factors("2X", 128, 2)
    # Row 37: lane 5 of the second 32-bit column; its two factors are the upper half word.
    assert [(int(made.lane[37, b, 0]), int(made.column[37, b, 0]), int(made.byte[37, b, 0])) for b in (0, 1)] == [
        (5, 1, 2), (5, 1, 3)]  # fmt: skip
    assert [int(lane) for lane in made.lane[37, 0]] == [5, 37, 69, 101]


@pytest.mark.parametrize(
    ("vector", "rows", "sf_id", "said"),
    [
        ("3X", 128, 0, "scale_vec::3X"),
        ("2X", 128, 1, "0 or 2"),
        ("4X", 128, 2, "byte 0 of"),
        ("1X", 100, 0, "rows = 100"),
        ("1X", 512, 0, "rows = 512"),
    ],
)
def test_what_is_not_there_is_told(vector: str, rows: int, sf_id: int, said: str) -> None:
    with pytest.raises(LayoutError, match=said):
        scale_factors(vector, rows, sf_id)
