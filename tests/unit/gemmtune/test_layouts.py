"""Layouts by strides, where several describe one memory."""

from __future__ import annotations

import pytest

from gemmtune.layouts import layout_of
from tuner.tables.importers.products import Array, _letter
from workers.cuda.copies import Strides


@pytest.mark.parametrize(
    ("shape", "strides", "letter", "apart"),
    [
        ((4096, 1), (1, 4096), "t", None),  # a Linear's weight with one output, transposed
        ((4096, 1), (1, 1), "t", None),
        ((1, 4096), (4096, 1), "n", None),
        ((1, 4096), (1, 1), "n", None),
        ((1, 1), (1, 1), "n", None),
        ((4096, 1), (8, 1), "n", Strides(8, 8 * 4096)),
        ((1, 4096), (1, 8), "t", Strides(8, 8 * 4096)),
    ],
)
def test_a_vector_is_one_line_and_listed_as_it_is_looked_up(
    shape: tuple[int, int], strides: tuple[int, int], letter: str, apart: Strides | None
) -> None:
    assert layout_of(shape, strides, 2) == (letter, apart)
    assert _letter(Array(shape, strides, "bfloat16")) == letter
