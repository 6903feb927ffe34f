"""Error bounds: a right C stays within them, and a fault exceeds them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from space.kinds.gemm import DTYPES, OUTPUTS, Gemm
from workers.cuda.bounds import FORMATS, MOST_EXACT_HALF_K, accumulation_share, bounds_of

FLOATS = [word for word in DTYPES if not word.endswith("int8")]


def truncated(values: np.ndarray, last_bit: np.ndarray) -> np.ndarray:
    """Values cut towards zero at a last bit."""
    return np.trunc(values / last_bit) * last_bit


def tensor_core_sum(products: np.ndarray, step: int, fraction_bits: int) -> np.ndarray:
    """Sums of rows as the hardware is described to add them: aligned to the largest term of a step, cut, added."""
    total = np.zeros(len(products))
    for start in range(0, products.shape[1], step):
        terms = np.concatenate([products[:, start : start + step], total[:, None]], axis=1)
        largest = np.maximum(np.abs(terms).max(axis=1, keepdims=True), 1e-30)
        last_bit = 2.0 ** (np.floor(np.log2(largest)) - fraction_bits)
        total = truncated(terms, last_bit).sum(axis=1)
    return total


@pytest.mark.parametrize(("dtype", "step", "bits"), [("bf16", 16, 25), ("tf32", 8, 25), ("fp8_e4m3", 32, 13)])
@pytest.mark.parametrize("k", [32, 1024, 16384])
def test_sums_cut_as_the_tensor_core_cuts_them_stay_within_the_bound(dtype: str, step: int, bits: int, k: int) -> None:
    rng = np.random.default_rng(k)
    a, b = rng.standard_normal((2, 300, k)).astype(np.float16).astype(np.float64)
    error = np.abs(tensor_core_sum(a * b, step, bits) - (a * b).sum(axis=1))
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    assert (error <= accumulation_share(Gemm.of(64, 64, k, dtype)) * norms).all()


@pytest.mark.parametrize("k", [8, 1024, 16384])
def test_bits_of_an_f32_beyond_tf32_stay_within_the_bound(k: int) -> None:
    held = np.random.default_rng(k).standard_normal((2, 300, k)).astype(np.float32).view(np.uint32) & ~np.uint32(0x1000)
    full, cut = (words.view(np.float32).astype(np.float64) for words in (held, held & ~np.uint32(0x1FFF)))
    (a, b), error = cut, np.abs(full.prod(axis=0).sum(axis=1) - cut.prod(axis=0).sum(axis=1))
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    share = accumulation_share(Gemm.of(64, 64, k, "tf32"))
    assert (error <= share * norms).all()
    # The bound is not many times too wide.
    assert (error > share * norms / 12).any()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("k", [256, 4096, 16384])
def test_a_lost_k_slice_stands_out_from_the_bound(dtype: str, k: int) -> None:
    problem = Gemm.of(4096, 4096, k, dtype)
    lost = 32 if dtype == "tf32" else 128 if dtype.startswith("fp8") else 64
    # Of a tile of 64x64 elements the largest is off by at least three standard deviations of the slice.
    assert accumulation_share(problem) * k < 3 * math.sqrt(lost) or problem.numerics == "fast"
    # The class that sums fp8 in few bits is verified on operands whose sums are exact as well.
    assert bounds_of(problem, exact_sums=True).accumulation == 0


@pytest.mark.parametrize("dtype_c", OUTPUTS)
def test_whole_numbers_are_exact_unless_something_rounds_them(dtype_c: str) -> None:
    plain = bounds_of(Gemm(8, 8, 8, "int8", "uint8", dtype_c, "s32"))
    exact = dtype_c in ("s32", "int8")
    assert (plain.rounding + plain.smallest + plain.accumulation == 0) is exact
    scaled = bounds_of(Gemm(8, 8, 8, "int8", "uint8", dtype_c, "s32", epilogue="alpha"))
    assert scaled.rounding + scaled.smallest > 0
    assert scaled.accumulation == 0


@pytest.mark.parametrize("step", [4, 8, 16])
@pytest.mark.parametrize("k", [32, 1024, 16384])
def test_f16_sums_rounded_once_a_step_stay_within_the_bound(step: int, k: int) -> None:
    a, b = np.random.default_rng(k).standard_normal((2, 300, k)).astype(np.float16).astype(np.float64)
    products, total = a * b, np.zeros(300)
    for start in range(0, k, step):
        total = (total + products[:, start : start + step].sum(axis=1)).astype(np.float16).astype(np.float64)
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    share = accumulation_share(Gemm.of(64, 64, k, "fp16_acc16"))
    assert (np.abs(total - products.sum(axis=1)) <= share * norms).all()
    assert 8 * math.sqrt(MOST_EXACT_HALF_K * 4 / 9) <= 2**11


def test_promotion_tightens_the_bound_of_fp8() -> None:
    fast, promoted = (accumulation_share(Gemm.of(64, 64, 8192, word)) for word in ("fp8_e4m3", "fp8_e4m3_promoted"))
    assert promoted < fast / 3


@pytest.mark.parametrize(("dtype", "half"), [("fp16", np.float16), ("f32", np.float32)])
def test_formats_are_those_of_ieee_754(dtype: str, half: type[np.floating]) -> None:
    info, form = np.finfo(half), FORMATS[dtype]
    assert form.rounding == float(info.eps) / 2
    assert form.smallest == float(info.smallest_subnormal) / 2
    assert (form.most, form.least) == (float(info.max), float(info.min))
