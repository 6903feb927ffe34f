"""Problems: parsing, keys, arithmetic, and refusals that name value, rule and fix."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from space.errors import ProblemError
from space.kind import problem_from_key
from space.kinds.gemm import DTYPES, LAYOUTS, Gemm
from space.problem import MAX_EXTENT

extents = st.integers(1, MAX_EXTENT)


@given(extents, extents, extents, st.sampled_from(sorted(DTYPES)), st.sampled_from(LAYOUTS))
def test_a_key_names_exactly_one_problem(m: int, n: int, k: int, dtype: str, layout: str) -> None:
    problem = Gemm.of(m, n, k, dtype, layout)
    assert problem_from_key(problem.key) == problem
    assert problem.dtype == dtype


def test_the_key_is_what_it_always_was() -> None:
    problem = Gemm.parse("4096x14336x1024", "bf16", "nt")
    assert problem.key == "gemm:bf16,bf16,bf16,f32:nt:4096x14336x1024:b1:none"


def test_flops_and_bytes_are_those_of_the_textbook() -> None:
    problem = Gemm.parse("2x3x4")
    assert problem.flops == 2 * 2 * 3 * 4
    assert problem.min_bytes == 2 * (2 * 4 + 3 * 4 + 2 * 3)
    # beta reads C before it is written.
    assert Gemm.parse("2x3x4", batch=5, epilogue="beta").min_bytes == 5 * 2 * (2 * 4 + 3 * 4 + 2 * 2 * 3)
    assert Gemm.parse("2x3x4", "int8").min_bytes == 2 * 4 + 3 * 4 + 4 * 2 * 3
    assert Gemm.parse("1000x1000x1000").tflops(2.0) == pytest.approx(1000.0)


@pytest.mark.parametrize(
    ("shape", "dtype", "layout", "named"),
    [
        ("0x16x16", "bf16", "nt", "m = 0"),
        ("16x-1x16", "bf16", "nt", "n = -1"),
        ("16x16x3000000000", "bf16", "nt", "k = 3000000000"),
        ("16x16", "bf16", "nt", "'16x16'"),
        ("axbxc", "bf16", "nt", "'axbxc'"),
        ("٣x16x16", "bf16", "nt", "is not MxNxK"),
        (f"{'9' * 5_000}x16x16", "bf16", "nt", "is not MxNxK"),
        ("", "bf16", "nt", "''"),
        ("16x16x16", "bf17", "nt", "'bf17'"),
        ("16x16x16", "bf16", "NT", "'NT'"),
    ],
)
def test_bad_input_is_named_in_the_refusal(shape: str, dtype: str, layout: str, named: str) -> None:
    with pytest.raises(ProblemError) as refusal:
        Gemm.parse(shape, dtype, layout)
    assert named in str(refusal.value)


@pytest.mark.parametrize(
    ("word", "ours"),
    [(word, "did you mean bf16?") for word in ("bfloat16", "torch.bfloat16", "BF16")]
    + [(word, "did you mean fp16?") for word in ("float16", "half", "torch.half", "f16", "FP16")]
    + [(word, "did you mean fp8_e4m3?") for word in ("float8_e4m3fn", "e4m3", "fp8")]
    + [("float8_e5m2", "did you mean fp8_e5m2?"), ("s8", "did you mean int8?"), ("u8", "did you mean uint8?")]
    + [(word, "tf32 is f32 in memory") for word in ("float32", "f32", "fp32")],
)
def test_a_dtype_as_other_tools_spell_it_is_refused_with_our_word(word: str, ours: str) -> None:
    with pytest.raises(ProblemError) as refused:
        Gemm.parse("64x64x64", word)
    assert str(refused.value).endswith(f"uint8; {ours}")


@pytest.mark.parametrize(("dtype", "ours"), [("bf16,bf16,float32,f32", "f32"), ("int8,int8,int32,s32", "s32")])
def test_each_of_four_dtypes_has_its_hint(dtype: str, ours: str) -> None:
    with pytest.raises(ProblemError, match=rf"dtype_c .*; did you mean {ours}\?$"):
        Gemm.parse("64x64x64", dtype)


def test_a_layout_in_capitals_is_refused_with_ours_and_a_word_of_nobody_without_a_hint() -> None:
    with pytest.raises(ProblemError, match=r"layout = 'NT' is unknown: use one of nt, .*; did you mean nt\?$"):
        Gemm.parse("64x64x64", layout="NT")
    with pytest.raises(ProblemError, match=r"uint8$"):
        Gemm.parse("64x64x64", "posit")


def test_a_number_without_end_is_no_key() -> None:
    with pytest.raises(ProblemError, match="not a problem key"):
        problem_from_key(f"gemm:bf16,bf16,bf16,f32:nt:{'9' * 5_000}x1x1:b1:none")


def test_half_as_many_rows_are_as_far_as_twice_as_many() -> None:
    problem = Gemm.of(96, 64, 64)
    assert problem.distance(Gemm.of(48, 64, 64)) == problem.distance(Gemm.of(192, 64, 64)) == 1
    assert problem.distance(Gemm.of(64, 96, 64)) == pytest.approx(1.169925001)
    assert problem.distance(problem) == 0


@pytest.mark.parametrize("key", ["nt:064x64x64:b1", "nt:64x64x64:b01", "nt:64x64x64:b1 ", "nt:64x٦٤x64:b1"])
def test_a_key_has_one_spelling(key: str) -> None:
    with pytest.raises(ProblemError, match="not a problem key"):
        problem_from_key(f"gemm:bf16,bf16,bf16,f32:{key}:none")


@pytest.mark.parametrize(("key", "fix"), [("foo", "begin it with gemm:, as in gemm:"), ("gemm:foo", "write gemm:A,B")])
def test_a_wrong_key_is_refused_with_the_way_to_write_one(key: str, fix: str) -> None:
    with pytest.raises(ProblemError, match=f"key '{key}' is not a problem key: {fix}"):
        problem_from_key(key)


@pytest.mark.parametrize("epilogue", ["none", "alpha", "alpha+beta+bias+gelu", "relu", "bias+silu"])
@pytest.mark.parametrize("dtype", [*DTYPES, "int8,uint8,bf16,s32", "fp8_e5m2,fp8_e5m2,fp16,f32_promoted"])
def test_epilogues_and_dtypes_travel_in_the_key(dtype: str, epilogue: str) -> None:
    problem = Gemm.of(64, 64, 64, dtype, epilogue=epilogue)
    assert problem_from_key(problem.key) == problem
    assert (problem.dtype, problem.epilogue) == (dtype, epilogue)
    assert problem.numerics == ("promoted" if "promoted" in dtype else "fast")


@pytest.mark.parametrize(("dtype_c", "bias"), [("f32", "f32"), ("bf16", "bf16"), ("fp16", "fp16"),
                                               ("fp8_e4m3", "f32"), ("s32", "f32"), ("int8", "f32")])  # fmt: skip
def test_a_bias_is_of_a_float_that_adds_well(dtype_c: str, bias: str) -> None:
    a, acc = ("int8", "s32") if dtype_c in ("s32", "int8") else ("fp8_e4m3", "f32")
    assert Gemm.of(16, 16, 16, f"{a},{a},{dtype_c},{acc}", epilogue="bias").operands()[-1].dtype == bias


def test_one_cubin_serves_problems_of_the_same_alignment_and_batches_apart() -> None:
    alike = Gemm.of(48, 1000, 4097, batch=7).class_of_alignment()
    assert (alike.extents, alike.batch) == ((16, 8, 1), 2)
    assert Gemm.of(32, 40, 33, batch=3).class_of_alignment() == alike != Gemm.of(32, 40, 33).class_of_alignment()


@pytest.mark.parametrize("scales", ["scaled", "scaled_rowwise"])
def test_scales_on_the_device_are_operands_of_one_product_of_8_bit_floats(scales: str) -> None:
    problem = Gemm.of(64, 32, 16, "fp8_e4m3", epilogue=f"{scales}+bias")
    assert (problem_from_key(problem.key), problem.scales) == (problem, scales)
    rows, columns = (64, 32) if scales == "scaled_rowwise" else (1, 1)
    assert [(each.role, each.dtype, each.elements) for each in problem.operands()[-2:]] == [
        ("scale", "f32", rows), ("scale", "f32", columns),
    ]  # fmt: skip
    assert problem.class_of_alignment().scales == scales
    for dtype, batch in (("bf16", 1), ("int8", 1), ("fp8_e4m3", 2)):
        with pytest.raises(ProblemError, match="needs 8-bit floats and batch = 1"):
            Gemm.of(64, 32, 16, dtype, batch=batch, epilogue=scales)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"epilogue": "scaled+alpha"}, "'scaled+alpha'"),
        ({"epilogue": "scaled+beta"}, "'scaled+beta'"),
        ({"epilogue": "scaled+scaled_rowwise"}, "'scaled+scaled_rowwise'"),
        ({"epilogue": "bias+alpha"}, "'bias+alpha'"),
        ({"epilogue": "relu+gelu"}, "'relu+gelu'"),
        ({"epilogue": ""}, "''"),
        ({"epilogue": "bias+bias"}, "'bias+bias'"),
        ({"epilogue": "none+bias"}, "'none+bias'"),
        ({"dtype_b": "fp16"}, "dtype_b beside bf16 = 'fp16'"),
        ({"dtype_acc": "s32"}, "dtype_acc of bf16 = 's32'"),
        ({"dtype_acc": "f32_promoted"}, "dtype_acc of bf16 = 'f32_promoted'"),
        ({"dtype_c": "s32"}, "dtype_c of bf16 = 's32'"),
        ({"dtype_a": "f32"}, "dtype_a = 'f32'"),
    ],
)
def test_what_no_gemm_has_is_refused(fields: dict[str, str], named: str) -> None:
    with pytest.raises(ProblemError) as refusal:
        Gemm(16, 16, 16, **fields)  # type: ignore[arg-type]
    assert named in str(refusal.value)


@pytest.mark.parametrize("field", ["m", "dtype_a", "dtype_c", "layout", "epilogue"])
def test_a_cell_without_end_is_not_printed_whole(field: str) -> None:
    with pytest.raises(ProblemError) as refusal:
        Gemm(**{"m": 16, "n": 16, "k": 16} | {field: "x" * 100_000})
    assert len(str(refusal.value)) < 400
    with pytest.raises(ProblemError) as refusal:
        problem_from_key(f"gemm:{'x' * 100_000}")
    assert len(str(refusal.value)) < 400


@pytest.mark.parametrize("m", [True, 1.0, "16"])
def test_extents_are_whole_numbers(m: object) -> None:
    with pytest.raises(ProblemError, match="m = "):
        Gemm(m, 16, 16)  # type: ignore[arg-type]
