"""Products of profiler traces: what strides, added matrices and scalars say of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from space.kinds.gemm import Gemm
from tests.unit.tuner.tables.test_importers import BF16, MM, event, trace
from tuner.tables.importers import shapes_of
from tuner.tables.shapes import Shapes

Read = Callable[..., Shapes]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def read(*events: Any) -> Shapes:  # noqa: ANN401
        (tmp_path / "trace.json").write_text(trace(*events))
        return shapes_of([tmp_path / "trace.json"])

    return read


@pytest.mark.parametrize(
    ("strides", "layout", "apart"),
    [
        ([[64, 1], [1, 64]], "nt", False), ([[1, 16], [128, 1]], "tn", False), ([[80, 1], [1, 64]], "nt", True),
        ([[1, 80], [1, 64]], "tt", True), ([[128, 2], [1, 64]], "", False),
    ],
)  # fmt: skip
def test_strides_say_the_layout(read: Read, strides: list[list[int]], layout: str, apart: bool) -> None:
    found = read(event("aten::mm", [[16, 64], [64, 128]], strides, [BF16, BF16]))
    assert found.counts == ({Gemm.of(16, 128, 64, layout=layout): 1} if layout else {})
    assert any("apart" in note for note in found.notes) == apart
    assert list(found.left_out) == ([] if layout else ["products whose operands have no dense rows or columns"])


def test_a_single_row_or_column_lies_apart_from_nothing(read: Read) -> None:
    vector = event("aten::mm", [[1, 64], [64, 128]], [[640, 1], [1, 64]], [BF16, BF16])
    column = event("aten::mm", [[16, 1], [1, 128]], [[640, 1], [128, 1]], [BF16, BF16])
    found = read(vector, column)
    assert list(found.counts) == [Gemm.of(1, 128, 64), Gemm.of(16, 128, 1, layout="nn")]
    assert not any("apart" in note for note in found.notes)


@pytest.mark.parametrize(("shape", "epilogue"), [([128], "bias"), ([1, 128], "bias"), ([16, 128], "beta")])
def test_what_a_product_adds_is_a_bias_or_a_source(read: Read, shape: list[int], epilogue: str) -> None:
    added = event("aten::addmm", [shape, [16, 64], [64, 128]], [[1] * len(shape), [64, 1], [1, 64]], [BF16] * 3)
    assert list(read(added).counts) == [Gemm.of(16, 128, 64, epilogue=epilogue)]


@pytest.mark.parametrize(("shape", "epilogue"), [([128], "bias"), ([1, 128], "beta")])
def test_what_a_single_row_adds_is_a_source_where_it_is_a_matrix(read: Read, shape: list[int], epilogue: str) -> None:
    """As `install` takes it: a table's product with a bias would never be met."""
    added = event("aten::addmm", [shape, [1, 64], [64, 128]], [[1] * len(shape), [64, 1], [1, 64]], [BF16] * 3)
    assert list(read(added).counts) == [Gemm.of(1, 128, 64, epilogue=epilogue)]


@pytest.mark.parametrize(("fast", "dtype"), [("True", "fp8_e4m3"), ("False", "fp8_e4m3_promoted")])
def test_a_trace_says_how_8_bit_floats_are_summed(read: Read, fast: str, dtype: str) -> None:
    shapes: list[Any] = [[16, 64], [64, 128], [], [], [], [], [], []]
    types = ["c10::Float8_e4m3fn", "c10::Float8_e4m3fn", "float", "float", "", "", "Scalar", "Scalar"]
    inputs = ["", "", "", "", "", "", "15", fast]
    scaled = event("aten::_scaled_mm", shapes, [[64, 1], [1, 64], *shapes[2:]], types, **{"Concrete Inputs": inputs})
    (found,) = read(scaled).counts
    assert found.fields()["dtype"] == dtype


def test_events_of_any_form_are_passed_over(read: Read) -> None:
    events: list[Any] = [None, 7, "aten::mm", [MM], {"name": 5}, {"name": None, "args": None}, MM]
    assert read(*events).counts == {Gemm.of(16, 128, 64): 1}


def at(began: float, took: float, name: str, dtype: str, thread: int = 7) -> dict[str, Any]:
    made = event(f"aten::{name}", [[16, 64], [64, 128]], [[64, 1], [1, 64]], [dtype, dtype])
    return made | {"ts": began, "dur": took, "pid": 1, "tid": thread}


def test_a_call_that_only_calls_the_product_again_is_none(read: Read) -> None:
    """Under autocast `bmm` is called with f32 and calls itself with bf16; a list had both."""
    found = read(at(10, 9, "mm", "float"), at(11, 7.5, "mm", BF16), at(30, 5, "mm", BF16), at(31, 3, "mm", BF16))
    assert (found.counts, found.left_out) == ({Gemm.of(16, 128, 64): 2}, {})


def test_calls_one_after_another_and_of_several_threads_all_count(read: Read) -> None:
    one, other = ([at(began, 2, "mm", BF16, thread) for began in (10, 12, 12.5, 20)] for thread in (7, 8))
    assert read(*one, *other).counts == {Gemm.of(16, 128, 64): 8}
    assert read(*(each for pair in zip(one, other, strict=True) for each in pair)).counts == {Gemm.of(16, 128, 64): 8}


def test_products_inside_of_one_of_8_bits_are_its_own(read: Read) -> None:
    outer = at(10, 9, "_int_mm", "signed char")
    found = read(outer, at(11, 2, "mm", "float"), at(14, 2, "mm", "float"), at(30, 2, "mm", BF16))
    assert found.counts == {Gemm.of(16, 128, 64, "int8"): 1, Gemm.of(16, 128, 64): 1}
    assert found.left_out == {}


def test_matrices_inside_of_a_batch_are_its_own(read: Read) -> None:
    """The processor adds the products of a batch in 16 bits one by one."""
    batch = event("aten::baddbmm", [[2, 16, 128], [2, 16, 64], [2, 64, 128]], None, [BF16] * 3)
    one = event("aten::addmm_", [[16, 128], [16, 64], [64, 128]], None, [BF16] * 3)
    times = [(10, 9), (11, 2), (14, 2)]
    calls = [each | {"ts": began, "dur": took} for each, (began, took) in zip((batch, one, one), times, strict=True)]
    assert read(*calls).counts == {Gemm.of(16, 128, 64, layout="nn", batch=2, epilogue="beta"): 1}
    assert read(*calls[1:]).counts == {Gemm.of(16, 128, 64, layout="nn", epilogue="beta"): 2}


def test_a_trace_of_very_many_threads_is_counted(read: Read) -> None:
    assert read(*(at(10, 2, "mm", BF16, thread) for thread in range(2_500))).counts == {Gemm.of(16, 128, 64): 2_500}


@pytest.mark.parametrize("name", ["_scaled_grouped_mm_v2", "_mixed_dtypes_linear", "_sparse_semi_structured_addmm"])
def test_products_of_newer_operators_are_left_out_and_said(read: Read, name: str) -> None:
    found = read(event(f"aten::{name}", [[16, 64], [64, 128]], [[64, 1], [1, 64]], [BF16, BF16]))
    assert (found.counts, list(found.left_out.values())) == ({}, [1])


def test_products_of_sparse_tensors_are_left_out_alone(read: Read) -> None:
    sparse = event("aten::mm", [[16, 64], [64, 128]], [[], [128, 1]], ["float", "float"])
    added = event("aten::addmm", [[16, 128], [16, 64], [64, 128], [], []], [[128, 1], [], [128, 1], [], []],
                  ["float", "float", "float", "Scalar", "Scalar"])  # fmt: skip
    found = read(sparse, MM, added)
    assert found.counts == {Gemm.of(16, 128, 64): 1}
    assert list(found.left_out) == ["mm without two matrices", "addmm without two matrices"]
