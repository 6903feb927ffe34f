"""PyTorch TunableOp's lists: untuned products and results, as torch asks BLAS for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from space.kinds.gemm import Gemm
from tuner.tables.importers import shapes_of
from tuner.tables.importers.source import Asked
from tuner.tables.shapes import Shapes

Read = Callable[..., Shapes]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def read(name: str, content: str, **asked: Any) -> Shapes:  # noqa: ANN401
        (tmp_path / name).write_text(content)
        return shapes_of([tmp_path / name], Asked(**asked))

    return read


UNTUNED = """GemmTunableOp_BFloat16_TN,tn_4096_16_2048_ld_2048_2048_4096
GemmTunableOp_Half_NN,nn_4096_16_2048_ld_4096_2048_4096
GemmTunableOp_BFloat16_NT,nt_4096_16_2048_ld_4096_16_4096
GemmTunableOp_BFloat16_TT,tt_4096_16_2048_ld_2048_16_4096
GemmAndBiasTunableOp_BFloat16_TN,tn_64_8_32_ld_32_32_64
GemmStridedBatchedTunableOp_BFloat16_NN,nn_64_8_32_B_4_ld_64_32_64
GemmTunableOp_float_TN,tn_64_8_32_ld_32_32_64
GemmTunableOp_tf32_TN,tn_64_8_32_ld_32_32_64
GemmTunableOp_double_TN,tn_64_8_32_ld_32_32_64
GemmStridedBatchedTunableOp_BFloat16_NN,nn_64_8_32_B_0_ld_64_32_64
"""
SCALED = (
    "ScaledGemmTunableOp_Float8_e4m3fn_Float8_e4m3fn_BFloat16_TN,tn_64_16_128_ld_128_128_64_a_Float8_e4m3fn_b_"
    "Float8_e4m3fn_c_BFloat16_as_float_bs_float_ast_{scale}_bst_{scale}_dscale_0_fast_{fast}_bias_{bias}\n"
)


def test_untuned_products_are_read_with_their_layouts(read: Read) -> None:
    found = read("tunableop_untuned0.csv", UNTUNED)
    assert list(found.counts.items()) == [
        (Gemm.of(16, 4096, 2048), 1), (Gemm.of(16, 4096, 2048, "fp16", "nn"), 1),
        (Gemm.of(16, 4096, 2048, layout="tn"), 1), (Gemm.of(16, 4096, 2048, layout="tt"), 1),
        (Gemm.of(8, 64, 32, epilogue="bias"), 1), (Gemm.of(8, 64, 32, layout="nn", batch=4), 1),
        (Gemm.of(8, 64, 32, "tf32"), 1),
    ]  # fmt: skip
    assert [count for reason, count in found.left_out.items() if "f32" in reason or "double" in reason] == [1, 1]
    assert found.left_out["products without elements"] == 1
    assert any("how often" in note for note in found.notes)
    assert len(read("t.csv", UNTUNED, tf32=True).counts) == 7


def test_scaled_products_and_results_are_read(read: Read) -> None:
    rows = SCALED.format(scale=0, fast=1, bias="None") + SCALED.format(scale=0, fast=0, bias="BFloat16")
    results = "Validator,PT_VERSION,2.14.1\n" + rows.replace("\n", ",Gemm_Cublaslt_id_66,0.01\n")
    rowwise, blocks = (SCALED.format(scale=scale, fast=1, bias="None") for scale in (1, 2))
    found = read("results.csv", results + rowwise + blocks + "GemmTunableOp_Half_NN,nn_64_*_32_ld_64_32_64,Default,1\n")
    first, second, third = found.counts
    assert first == Gemm(16, 64, 128, "fp8_e4m3", "fp8_e4m3", "bf16", "f32", "nt", 1, "scaled")
    assert second == Gemm(16, 64, 128, "fp8_e4m3", "fp8_e4m3", "bf16", "f32_promoted", "nt", 1, "scaled+bias")
    assert third == Gemm(16, 64, 128, "fp8_e4m3", "fp8_e4m3", "bf16", "f32", "nt", 1, "scaled_rowwise")
    assert list(found.left_out.values()) == [1, 1]


def test_a_scaled_product_may_have_a_result_in_f32(read: Read) -> None:
    """Parameters name dtypes as c10::toString does, operations as C++."""
    row = SCALED.format(scale=0, fast=1, bias="None").replace("as_float_bs_float", "as_Float_bs_Float")
    found = read("untuned.csv", row.replace("_BFloat16_TN", "_float_TN").replace("c_BFloat16", "c_Float"))
    assert list(found.counts) == [Gemm(16, 64, 128, "fp8_e4m3", "fp8_e4m3", "f32", "f32", "nt", 1, "scaled")]


@pytest.mark.parametrize(
    ("shape", "layout"), [("1_16_64", "nt"), ("64_1_32", "nn"), ("64_16_1", "tn"), ("1_1_64", "nt")]
)
def test_a_vector_has_the_layout_that_torch_tensors_have(read: Read, shape: str, layout: str) -> None:
    """A Linear's weight of one row is contiguous however it is transposed; `install` looks for one key."""
    n, m, k = map(int, shape.split("_"))
    rows = (f"GemmTunableOp_BFloat16_{xy},{xy.lower()}_{shape}_ld_64_64_{n}\n" for xy in ("NN", "TT"))
    found = {problem for row in rows for problem in read("untuned.csv", row).counts}
    assert Gemm.of(m, n, k, layout=layout) in found
    assert (len(found) == 1) == (1 in (m, k) and 1 in (k, n))


@pytest.mark.parametrize(("row", "gaps"), [
    ("NN,nn_1_64_128_ld_1_128_1", False), ("NT,nt_1_64_128_ld_1_64_1", False), ("TN,tn_64_1_128_ld_128_128_64", False),
    ("NN,nn_1_64_128_ld_8_128_1", True), ("TN,tn_64_1_128_ld_128_256_64", True),
])  # fmt: skip
def test_a_vector_is_dense_by_the_letters_that_torch_wrote(read: Read, row: str, gaps: bool) -> None:
    found = read("untuned.csv", f"GemmTunableOp_BFloat16_{row}\n")
    assert any("apart" in note for note in found.notes) == gaps


@pytest.mark.parametrize(("row", "layout"), [
    ("TT,tt_64_1_128_B_4_ld_128_1_1", "nt"), ("TN,tn_64_1_128_B_4_ld_128_128_1", "nt"),
    ("NT,nt_64_1_128_B_4_ld_64_1_1", "tt"),
])  # fmt: skip
def test_a_batch_of_one_column_is_no_batch_of_one_row(read: Read, row: str, layout: str) -> None:
    """`torch.bmm` asks BLAS for it with A first; only the distance of C's columns tells."""
    found = read("untuned.csv", f"GemmStridedBatchedTunableOp_BFloat16_{row}\n")
    assert list(found.counts) == [Gemm.of(64, 1, 128, layout=layout, batch=4)]
    assert not any("apart" in note for note in found.notes)
    rows = "GemmStridedBatchedTunableOp_BFloat16_TN,tn_64_1_128_B_4_ld_128_128_64\n"
    assert list(read("untuned.csv", rows).counts) == [Gemm.of(1, 64, 128, batch=4)]
    gaps = read("untuned.csv", "GemmStridedBatchedTunableOp_BFloat16_TN,tn_64_1_128_B_4_ld_256_128_1\n")
    assert any("apart" in note for note in gaps.notes)


def test_rows_of_older_torchs_are_read_for_what_they_say(read: Read) -> None:
    plain = "GemmTunableOp_BFloat16_TN,tn_64_8_32,Default,0.5\n"
    plain += "GemmStridedBatchedTunableOp_Half_NN,nn_64_8_32_B_4,Default,1\n"
    found = read("results.csv", "Validator,PT_VERSION,2.3.0\n" + plain)
    assert list(found.counts) == [Gemm.of(8, 64, 32), Gemm.of(8, 64, 32, "fp16", "nn", batch=4)]
    assert not any("apart" in note for note in found.notes)
    fp8 = "ScaledGemmTunableOp_Float8_e4m3fn_Float8_e4m3fn_BFloat16_TN,tn_64_16_128"
    old = f"{fp8},Default,0.1\n{fp8}_ld_128_128_64,Default,0.1\n{fp8}_ld_128_128_64_rw_1_bias_None,Default,0.1\n"
    found = read("results.csv", plain + old)
    assert (len(found.counts), list(found.left_out.values())) == (2, [3])
    assert "do not say how such products are scaled" in next(iter(found.left_out))


@pytest.mark.parametrize("word", ["c10::complex<float>", "c10::complex<double>"])
def test_complex_products_are_left_out_alone(read: Read, word: str) -> None:
    row = f"GemmTunableOp_{word}_NN,nn_64_8_32_ld_64_32_64\n"
    found = read("untuned.csv", row + "GemmTunableOp_BFloat16_TN,tn_64_8_32_ld_32_32_64\n")
    assert list(found.counts) == [Gemm.of(8, 64, 32)]
    assert found.left_out == {f"{word} products: gemmtune has no kernels for them": 1}


def test_rows_apart_count_as_dense_ones_and_are_said(read: Read) -> None:
    found = read("t.csv", "GemmTunableOp_BFloat16_TN,tn_64_8_32_ld_32_96_64\n")
    assert list(found.counts) == [Gemm.of(8, 64, 32)]
    assert any("apart" in note for note in found.notes)
