"""Layouts by strides, where several describe one memory."""

from __future__ import annotations

from itertools import product

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


STEP = 8  # elements of two bytes in 16
SHAPES = [shape for batch in (1, 2, 3) for shape in product((batch,), (1, 2, 3, 8), (1, 2, 3, 8))]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_whatever_is_taken_is_read_where_it_lies(shape: tuple[int, int, int]) -> None:
    for strides in product((0, 4, 6, 8, 9, 16, 24, 64), (0, 1, 2, 3, 8, 16), (0, 1, 2, 3, 8, 16)):
        found = layout_of(shape, strides, 2)
        if found is None:
            continue
        letter, lies = found
        lines, width = shape[1:] if letter == "n" else shape[:0:-1]
        line, matrix = (lies.line, lies.matrix) if lies else (width, lines * width)
        if lies:
            assert line >= width
            assert line % STEP == 0
            # TMA takes no distance of 0 from matrix to matrix.
            assert shape[0] == 1 or (matrix > 0 and matrix % STEP == 0)
        for each, row, column in product(*map(range, shape)):
            first, second = (row, column) if letter == "n" else (column, row)
            read = each * matrix + first * line + second
            assert read == each * strides[0] + row * strides[1] + column * strides[2], (strides, found)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("letter", ["n", "t"])
@pytest.mark.parametrize(("gap", "beyond"), [(0, 0), (8, 0), (0, 8), (8, 16)])
def test_dense_matrices_and_lines_a_step_apart_are_taken(
    shape: tuple[int, int, int], letter: str, gap: int, beyond: int
) -> None:
    batch, rows, columns = shape
    lines, width = (rows, columns) if letter == "n" else (columns, rows)
    line = -(-width // STEP) * STEP + gap if gap or beyond else width
    matrix = lines * line + beyond
    found = layout_of(shape, (matrix, line, 1) if letter == "n" else (matrix, 1, line), 2)
    assert found is not None
    assert not (found[1] and (gap, beyond) == (0, 0))
    if batch == 1:
        assert layout_of(shape[1:], (line, 1) if letter == "n" else (1, line), 2) == found
