"""CUTLASS's problems: letters of BLAS, sums, and what is added."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from space.kinds.gemm import Gemm
from tuner.tables.importers import shapes_of
from tuner.tables.shapes import Shapes

Read = Callable[..., Shapes]
HALF = {"m": 16, "n": 128, "k": 64, "layout": "tnt"} | dict.fromkeys(("dtype_a", "dtype_b", "dtype_d"), "f16")


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def read(*entries: dict[str, Any]) -> Shapes:
        (tmp_path / "problems.json").write_text(json.dumps(entries))
        return shapes_of([tmp_path / "problems.json"])

    return read


def test_cutlass_problems_are_read_with_their_letters(read: Read) -> None:
    base: dict[str, Any] = {"m": 16, "n": 128, "k": 64, "batch_count": 1, "layout": "tnt", "beta": 0.0}
    base |= dict.fromkeys(("dtype_a", "dtype_b", "dtype_c", "dtype_d"), "bf16") | {"dtype_acc": "f32"}
    eight = {"dtype_a": "e4m3", "dtype_b": "e4m3", "use_fast_acc": False, "batch_count": 2}
    capitals = dict.fromkeys(("dtype_a", "dtype_b", "dtype_d"), "F16") | {"dtype_acc": "F32"}
    letters = [base | {"layout": "ttt"}, base | {"layout": "tnn"}]
    entries = [base, base | capitals, *letters, base | eight, base | {"dtype_a": "s4"}]
    found = read(*entries)
    assert list(found.counts) == [
        Gemm.of(16, 128, 64), Gemm.of(16, 128, 64, "fp16"), Gemm.of(16, 128, 64, layout="nn"), Gemm.of(128, 16, 64),
        Gemm.of(16, 128, 64, "fp8_e4m3_promoted", batch=2),
    ]  # fmt: skip
    assert list(found.left_out.values()) == [1]


def test_cutlass_problems_say_how_they_are_summed(read: Read) -> None:
    half: dict[str, Any] = HALF
    eight = half | {"dtype_a": "e4m3", "dtype_b": "e4m3", "dtype_d": "bf16"}
    entries = [
        half, half | {"dtype_acc": "f16"}, half | {"dtype_acc": "f32", "beta": 1.0}, eight,
        eight | {"use_fast_acc": False}, eight | {"dtype_acc": "f16", "dtype_d": "f16", "use_fast_acc": False},
        half | {"dtype_acc": "f64"}, half | {"dtype_a": "bf16", "dtype_b": "bf16", "dtype_acc": "f16"},
    ]  # fmt: skip
    found = read(*entries)
    words = [(problem.fields()["dtype"], problem.fields()["epilogue"]) for problem in found.counts]
    assert words == [
        ("fp16", "none"), ("fp16_acc16", "none"), ("fp16", "beta"), ("fp8_e4m3", "none"), ("fp8_e4m3_promoted", "none"),
        ("fp8_e4m3_acc16", "none"),
    ]  # fmt: skip
    assert [reason.partition(":")[0] for reason in found.left_out] == [
        "f16 × f16 products summed in f64", "bf16 × bf16 products summed in f16",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("said", "epilogue"),
    [
        ({"alpha": 0.5}, "alpha"), ({"alpha": 1.0, "beta": 0.0}, "none"), ({"alpha": 2, "beta": 1}, "alpha+beta"),
        ({"beta": 1.0, "dtype_c": "f16"}, "beta"), ({"beta": 0.0, "dtype_c": "f32"}, "none"),
    ],
)  # fmt: skip
def test_cutlass_problems_say_what_is_multiplied_and_added(read: Read, said: dict[str, Any], epilogue: str) -> None:
    assert read(HALF | said).counts == {Gemm.of(16, 128, 64, "fp16", epilogue=epilogue): 1}


def test_a_source_of_another_dtype_than_the_result_is_left_out(read: Read) -> None:
    found = read(HALF | {"beta": 1.0, "dtype_c": "f32"})
    assert (found.counts, list(found.left_out.values())) == ({}, [1])
    assert "add a matrix of f32 to a result in f16" in next(iter(found.left_out))
