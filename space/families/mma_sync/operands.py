"""How a problem's operands reach the kernel: which one is A, their major modes, copies, and which are packed first."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from space.arch import LINE_BYTES, VECTOR_BYTES, WORD_BYTES
from space.columns import BoolColumn, Columns, IntColumn
from space.config import Config
from space.families.common import epilogue_constants, input_bytes, rows_anywhere
from space.instructions.mma_sync import MmaSync, mma_sync_for
from space.instructions.operand import majors_of
from space.kinds.gemm import Gemm
from space.knobs import KnobValue
from space.layouts.banks import access
from space.layouts.swizzle import CORE_BYTES, CORE_ROWS, SWIZZLES

#: Bytes of an element that no load transposes: `ldmatrix.trans` takes 16-bit elements (PTX ISA, ldmatrix: `.b16`), and
#: those of 32 bits are whole words of a fragment.
PACKED_BYTES = 1
#: Rows or columns of C up to which memory limits a product, and multiplications up to which its launches do.
FEW_LINES, SHORT_PRODUCTS = 256, 2**30


@lru_cache(maxsize=1024)
def instruction(problem: Gemm, arch: str) -> MmaSync | None:
    """The `mma.sync` of a problem's dtypes with the most K; None if the arch has none."""
    return next(iter(mma_sync_for(arch, problem.dtype_a, problem.dtype_b, problem.dtype_acc)), None)


@lru_cache(maxsize=1024)
def block_scaled(problem: Gemm, arch: str) -> MmaSync | None:
    """The block-scaled `mma.sync` of a problem's dtypes; None if the arch has none. It takes operands of 8 bits."""
    if input_bytes(problem) != 1:
        return None
    return next(iter(mma_sync_for(arch, problem.dtype_a, problem.dtype_b, problem.dtype_acc, kind="mxf8f6f4")), None)


def line_elements(problem: Gemm, operand: str) -> int:
    """Elements along the contiguous dimension of the problem's `a` or `b`."""
    if majors_of(problem.layout)[operand == "b"] == "k":
        return problem.k
    return problem.m if operand == "a" else problem.n


def needs_packing(problem: Gemm, operand: str) -> bool:
    """Whether a copy pass must make the problem's `a` or `b` K-major: no load transposes 8-bit elements."""
    return majors_of(problem.layout)[operand == "b"] == "mn" and input_bytes(problem) == PACKED_BYTES


def reads_what_tma_can_not(problem: Gemm) -> bool:
    """Whether the kernel reads an operand as it lies that one with TMA and wgmma packs first, and the product is so
    short, or has so few rows or columns, that packing may take longer than mma.sync does.

    TMA needs lines at multiples of 16 bytes, and wgmma transposes only 16-bit elements.
    """
    products = problem.batch * problem.m * problem.n * problem.k
    if min(problem.m, problem.n) > FEW_LINES and products > SHORT_PRODUCTS:
        return False
    return any(
        copy_bytes(problem, operand) < VECTOR_BYTES or loaded_by_words(problem, operand)
        for operand in "ab" if not needs_packing(problem, operand)
    )  # fmt: skip


def pitch_bytes(problem: Gemm, operand: str) -> int:
    """Bytes from one line to the next of the `a` or `b` that the kernel reads; packed lines start at L2 lines."""
    size = input_bytes(problem)
    if needs_packing(problem, operand):
        return -(-problem.k * size // LINE_BYTES) * LINE_BYTES
    return line_elements(problem, operand) * size


def copy_bytes(problem: Gemm, operand: str) -> int:
    """Bytes of the widest copy that every line of the `a` or `b` that the kernel reads is aligned to."""
    return math.gcd(pitch_bytes(problem, operand), VECTOR_BYTES)


def ragged(problem: Gemm, operand: str) -> bool:
    """Whether lines of the `a` or `b` that the kernel reads end within a copy: packed ones may."""
    return needs_packing(problem, operand) and problem.k * input_bytes(problem) % VECTOR_BYTES != 0


@lru_cache(maxsize=1024)
def lies_mn_major(problem: Gemm, operand: str) -> bool:
    """Whether the kernel reads the problem's `a` or `b` MN-major; a packed operand is K-major."""
    return majors_of(problem.layout)[operand == "b"] == "mn" and not needs_packing(problem, operand)


def mn_major(c: Columns, operand: str) -> BoolColumn:
    """Whether the kernel's `a` or `b` is MN-major."""
    other = "b" if operand == "a" else "a"
    return np.where(c["swap_ab"] == 1, lies_mn_major(c.problem, other), lies_mn_major(c.problem, operand))


@lru_cache(maxsize=1024)
def loaded_by_words(problem: Gemm, operand: str) -> bool:
    """Whether lanes load fragments of the problem's `a` or `b` word by word: those of 32 bits that lie MN-major."""
    return lies_mn_major(problem, operand) and input_bytes(problem) == WORD_BYTES


def conflict_degree(span_bytes: int, *, swizzled: bool) -> int:
    """The n of the n-way bank conflict in which ldmatrix reads eight lines of `span_bytes` at one group of 16 bytes."""
    line = np.arange(CORE_ROWS)
    start = line * span_bytes
    mode = SWIZZLES[f"{span_bytes}B"] if swizzled else SWIZZLES["none"]
    return access(mode.apply(start), CORE_BYTES).degree


def tile_rows(c: Columns, operand: str) -> IntColumn:
    """Rows of M or N of the problem's `a` or `b` in a tile."""
    column: IntColumn = np.where((c["swap_ab"] == 1) == (operand == "a"), c["tile_n"], c["tile_m"])
    return column


def narrowest_copy(problem: Gemm) -> int:
    """Bytes of the widest copies that lines of both operands are aligned to."""
    return min(copy_bytes(problem, operand) for operand in "ab")


def problem_constants(problem: Gemm, config: Config) -> dict[str, KnobValue]:
    """Members of the kernel's `Config` struct that follow from the problem: dtypes, copies, packing, the epilogue."""
    a, b = ("b", "a") if config["swap_ab"] else ("a", "b")
    dtypes = {"a": problem.dtype_a, "b": problem.dtype_b}
    constants: dict[str, KnobValue] = {
        "tma": int(config["copies"] == "tma"),
        "packs": int(needs_packing(problem, "a") or needs_packing(problem, "b")),
        "element_bytes": input_bytes(problem),
        "input_a": dtypes[a],
        "input_b": dtypes[b],
        "copy_bytes_a": copy_bytes(problem, a),
        "copy_bytes_b": copy_bytes(problem, b),
        "ragged_a": int(ragged(problem, a)),
        "ragged_b": int(ragged(problem, b)),
        "output": problem.dtype_c,
        "integers": int(problem.dtype_acc == "s32"),
        "promoted": int(problem.numerics == "promoted"),
        "half_sums": int(problem.dtype_acc == "fp16"),
        "rows_anywhere": int(not config["swap_ab"] and rows_anywhere(problem)),
    }
    return constants | epilogue_constants(problem)
