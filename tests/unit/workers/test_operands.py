"""Operands: aligned, disjoint arrays with guards on both sides."""

from __future__ import annotations

import numpy as np
import pytest

from space.kinds.gemm import DTYPES, OUTPUTS, Gemm
from space.problem import DTYPE_BYTES
from workers.cuda import operands
from workers.cuda.kinds import gemm

PROBLEMS = [
    Gemm.of(37, 29, 50, dtype, layout, batch, epilogue)
    for dtype in DTYPES
    for layout, batch, epilogue in (("nt", 1, "none"), ("tn", 3, "alpha+beta+bias+gelu"))
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.key)
def test_arrays_are_aligned_and_no_zone_touches_another(problem: Gemm) -> None:
    parts = operands.parts_of(problem)
    end = 0
    for part in parts:
        assert part.offset % operands.ALIGN_BYTES == 0
        assert part.offset - operands.GUARD_BYTES >= end
        end = part.offset + part.size_bytes + operands.GUARD_BYTES
    assert operands.copy_bytes(parts) >= end
    names = {part.name for part in parts}
    assert names - {"a", "b", "c"} == ({"source", "bias"} if problem.epilogue != "none" else set())


@pytest.mark.parametrize("layout", ["nt", "nn", "tn", "tt"])
def test_operands_are_dense_in_every_layout(layout: str) -> None:
    problem = Gemm.of(5, 7, 11, layout=layout, batch=2)
    a, b = gemm.operand_a(problem, 0), gemm.operand_b(problem, 0)
    for operand, rows in ((a, 5), (b, 7)):
        places = {
            product * operand.batch_stride + row * operand.row_stride + k * operand.k_stride
            for product in range(2)
            for row in range(rows)
            for k in range(11)
        }
        assert places == set(range(2 * rows * 11))
    assert (a.k_stride == 1) == (layout[0] == "n")
    assert (b.k_stride == 1) == (layout[1] == "t")


@pytest.mark.parametrize("seed", [0, 1, 64, 12345, 2**48 - 1])
@pytest.mark.parametrize("dtypes", ["bf16", "int8", "int8,int8,int8,s32", "fp8_e4m3,fp8_e4m3,fp8_e4m3,f32"])
def test_scalars_are_exact_in_f32_and_keep_c_in_range(seed: int, dtypes: str) -> None:
    problem = Gemm.of(64, 64, 4096, dtypes, epilogue="alpha+beta")
    alpha, beta = gemm.scalars(problem, seed)
    assert alpha.as_integer_ratio()[0] < 2**24
    assert 0.5 <= beta <= 1.5
    assert gemm.scalars(Gemm.of(64, 64, 4096, dtypes), seed) == (1.0, 0.0)
    deviation = abs(alpha) * 64 * (74**2 if dtypes.startswith("int8") else 1)
    assert deviation < {"int8": 128, "fp8_e4m3": 32}.get(problem.dtype_c, 2.0**30)


@pytest.mark.parametrize("k", [64, 4096, 65536])
@pytest.mark.parametrize("dtypes", [("int8", "int8"), ("uint8", "int8"), ("int8", "uint8"), ("uint8", "uint8")])
def test_a_c_of_8_bits_shows_what_its_sums_are(dtypes: tuple[str, str], k: int) -> None:
    rng = np.random.default_rng(k)
    a, b = (rng.integers(*{"int8": (-128, 128), "uint8": (0, 256)}[dtype], (64, k)).astype(float) for dtype in dtypes)
    sums = a @ b.T
    for seed in range(65):
        alpha, _ = gemm.scalars(Gemm(64, 64, k, *dtypes, "int8", "s32", epilogue="alpha"), seed)
        assert (np.abs(alpha * sums) >= 127).mean() < 0.15
        # Half a sum is another number; and so is one of another row and column, unless K is so long that sums of
        # unsigned numbers are all alike.
        assert (np.rint(alpha * sums) != np.rint(alpha * sums / 2)).mean() > 0.7
        if k < 65536:
            assert (np.rint(alpha * sums) != np.rint(alpha * sums[::-1, ::-1])).mean() > 0.03


@pytest.mark.parametrize("read_bytes", [1, 1000, 4096, 2**20, 10**9])
@pytest.mark.parametrize("l2_bytes", [1, 50 * 2**20, 62_914_560])
def test_what_runs_between_two_launches_on_one_copy_exceeds_three_times_l2(read_bytes: int, l2_bytes: int) -> None:
    others = operands.cold_copies(read_bytes, l2_bytes) - 1
    assert (others - 1) * read_bytes < 3 * l2_bytes <= others * read_bytes


@pytest.mark.parametrize(
    ("read_bytes", "launches", "copies"),
    [
        (15_000_000, 1, 14), (15_000_000, 400, 287), (235_000_000, 30, 19), (10**9, 6, 5),
        # Arithmetic takes longer: a replay has few launches.
        (100_000_000, 10, 10), (400_000_000, 2, 2),
    ],
)  # fmt: skip
def test_operands_rotate_through_gigabytes_if_a_replay_reads_them(
    read_bytes: int, launches: int, copies: int
) -> None:
    assert operands.cold_copies(read_bytes, 62_914_560, launches) == copies


#: Bits of the exponent and of the fraction. Of a NaN all of the exponent is set, and some of the fraction; of e4m3 all.
FLOATS = {"bf16": (8, 7), "fp16": (5, 10), "tf32": (8, 23), "f32": (8, 23), "fp8_e4m3": (4, 3), "fp8_e5m2": (5, 2)}


def elements(pattern: int, dtype: str) -> list[int]:
    """What an array full of a pattern holds."""
    return np.full(2, pattern, np.uint32).view({1: np.uint8, 2: np.uint16, 4: np.uint32}[DTYPE_BYTES[dtype]]).tolist()


def is_nan(code: int, dtype: str) -> bool:
    exponent, fraction = FLOATS[dtype]
    top, rest = code >> fraction & 2**exponent - 1, code & 2**fraction - 1
    return top == 2**exponent - 1 and (rest == 2**fraction - 1 if dtype == "fp8_e4m3" else rest > 0)


@pytest.mark.parametrize("dtype", OUTPUTS)
def test_poison_is_no_result(dtype: str) -> None:
    first, second = (elements(operands.poison_of(dtype, turn), dtype) for turn in (0, 1))
    if dtype in FLOATS:
        assert all(is_nan(code, dtype) for code in first + second)
    else:
        # A whole number may be a result, but not two of them.
        assert all(one != other for one, other in zip(first, second, strict=True))


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.key)
def test_what_is_read_beyond_an_input_shows(problem: Gemm) -> None:
    for part in operands.parts_of(problem):
        read = elements(part.beyond, part.dtype)
        if part.dtype in FLOATS and part.role != "output":
            assert all(is_nan(code, part.dtype) for code in read)
        elif part.dtype in ("int8", "uint8"):
            assert set(read) == {{"int8": 0x80, "uint8": 0xFF}[part.dtype]}


def test_every_dtype_is_known_to_the_kernels() -> None:
    assert set(operands.ELEMENTS) == set(DTYPE_BYTES)
