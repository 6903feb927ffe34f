"""How a problem is described to cuBLASLt, against a recorder in the library's place."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from space.kinds.gemm import DTYPES, Gemm
from workers.cuda import copies
from workers.cuda.families import cublaslt


class Names:
    """Any attribute is its own name."""

    def __getattr__(self, name: str) -> str:
        return name


class Recorder:
    """Takes the place of `nvmath.bindings.cublasLt` and remembers what it was told."""

    MatmulDescAttribute = MatrixLayoutAttribute = MatmulPreferenceAttribute = Names()
    matmul_heuristic_result_dtype = SimpleNamespace(itemsize=64)

    class cuBLASLtError(Exception):  # noqa: N801
        pass

    def __init__(self, supported: bool = True) -> None:
        self.layouts: list[tuple[int, int, int, int]] = []
        self.attributes: dict[str, int] = {}
        self.calls: list[tuple[int, ...]] = []
        self._supported = supported

    def matmul_desc_create(self, compute: int, scale: int) -> int:
        self.attributes |= {"compute": compute, "scale": scale}
        return 1

    def matrix_layout_create(self, dtype: int, rows: int, columns: int, ld: int) -> int:
        self.layouts.append((dtype, rows, columns, ld))
        return len(self.layouts)

    def matmul_desc_set_attribute(self, _: int, attribute: str, address: int, size: int) -> None:
        kind = {1: np.int8, 4: np.int32, 8: np.uint64}[size]
        self.attributes[attribute] = int(np.frombuffer(ctypes.string_at(address, size), dtype=kind)[0])

    def matrix_layout_set_attribute(self, layout: int, attribute: str, address: int, size: int) -> None:
        value = int.from_bytes(ctypes.string_at(address, size), "little")
        self.attributes[f"{attribute} {layout}"] = value

    def MatmulHeuristicResult(self, count: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(ptr=4096)

    def matmul_preference_create(self) -> int:
        return 9

    def matmul_preference_set_attribute(self, *_: int) -> None: ...
    def matmul_preference_destroy(self, _: int) -> None: ...

    def matmul_algo_get_heuristic(self, *arguments: int) -> None:
        if not self._supported:
            raise self.cuBLASLtError
        ctypes.c_int32.from_address(arguments[-1]).value = 3

    def matmul(self, *arguments: int) -> None:
        self.calls.append(arguments)


def described(problem: Gemm, supported: bool = True) -> tuple[Recorder, Any]:
    lt = Recorder(supported)
    library = SimpleNamespace(lt=lt, handle=7, workspace=SimpleNamespace(address=512))
    return lt, cublaslt.Matmul(library, problem)


@pytest.mark.parametrize("layout", ["nt", "nn", "tn", "tt"])
def test_row_major_operands_are_the_transposed_product_to_the_library(layout: str) -> None:
    m, n, k = 5, 7, 11
    rng = np.random.default_rng(1)
    a = rng.integers(-9, 9, (k, m) if layout[0] == "t" else (m, k))
    b = rng.integers(-9, 9, (n, k) if layout[1] == "t" else (k, n))
    lt, _ = described(Gemm.of(m, n, k, layout=layout))
    (_, *first), (_, *second), (_, *output), _ = lt.layouts

    def as_library(x: np.ndarray, rows: int, columns: int, ld: int) -> np.ndarray:
        assert ld == rows
        return x.ravel().reshape(columns, rows).T

    left, right = as_library(b, *first), as_library(a, *second)
    left = left.T if lt.attributes["TRANSA"] else left
    right = right.T if lt.attributes["TRANSB"] else right
    c = (a.T if layout[0] == "t" else a) @ (b.T if layout[1] == "t" else b)
    assert (left @ right == as_library(c, *output)).all()


def test_a_batch_is_strided_over_dense_products() -> None:
    lt, _ = described(Gemm.of(5, 7, 11, batch=4))
    assert [lt.attributes[f"BATCH_COUNT {place}"] for place in (1, 2, 3, 4)] == [4] * 4
    assert [lt.attributes[f"STRIDED_BATCH_OFFSET {place}"] for place in (1, 2, 3)] == [77, 55, 35]


def test_fast_accumulation_is_the_numerics_of_the_problem() -> None:
    for word, fast in (("fp8_e4m3", 1), ("fp8_e4m3_promoted", 0)):
        assert described(Gemm.of(16, 16, 16, word))[0].attributes["FAST_ACCUM"] == fast
    assert "FAST_ACCUM" not in described(Gemm.of(16, 16, 16))[0].attributes


@pytest.mark.parametrize(
    ("dtype", "compute", "scale"),
    [("bf16", 68, 0), ("fp16", 68, 0), ("tf32", 77, 0), ("fp8_e5m2", 68, 0), ("int8", 72, 10)],
)
def test_sums_are_of_the_accumulators_type(dtype: str, compute: int, scale: int) -> None:
    lt, _ = described(Gemm.of(16, 16, 16, dtype))
    assert (lt.attributes["compute"], lt.attributes["scale"]) == (compute, scale)


def test_fused_parts_are_asked_for() -> None:
    lt, matmul = described(Gemm.of(16, 16, 16, epilogue="alpha+beta+bias+gelu"))
    assert lt.attributes["EPILOGUE"] == 36
    copy = copies.Copy(a=1, b=2, c=3, source=4, bias=5, alpha=0.5, beta=1.25)
    matmul.launch(SimpleNamespace(handle=0), copy, 1)
    (call,) = lt.calls
    assert (call[3], call[5], call[8], call[10]) == (2, 1, 4, 3)
    assert call[12] == 4096 + 64
    assert lt.attributes["BIAS_POINTER"] == 5


def test_what_the_heuristic_refuses_has_no_ranks() -> None:
    assert list(described(Gemm.of(16, 16, 16, "fp8_e4m3", "tt"), supported=False)[1].ranks) == []
    assert list(described(Gemm.of(16, 16, 16))[1].ranks) == [0, 1, 2]


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (Gemm.of(8, 8, 8, "uint8"), "uint8"),
        (Gemm.of(8, 8, 8, epilogue="silu"), "silu"),
        (Gemm.of(8, 8, 8, "fp8_e4m3,fp8_e4m3,fp8_e4m3,f32", epilogue="bias"), "fp8_e4m3 output"),
        (Gemm.of(8, 8, 8, "int8,int8,bf16,s32", epilogue="alpha"), "s32 sums"),
    ],
)
def test_what_the_library_has_not_is_said(problem: Gemm, reason: str) -> None:
    assert reason in cublaslt.unsupported(problem)


@pytest.mark.parametrize("dtype", [word for word in DTYPES if word != "uint8"])
def test_every_other_dtype_word_may_have_a_baseline(dtype: str) -> None:
    assert cublaslt.unsupported(Gemm.of(64, 64, 64, dtype)) == ""
