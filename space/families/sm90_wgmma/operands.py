"""How a problem's operands reach the kernel: which one is A, their major modes, and which must be packed first."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import numpy as np

from space.arch import LINE_BYTES
from space.columns import BoolColumn, Columns, kept
from space.config import Config
from space.families.common import epilogue_constants, input_bytes, rows_anywhere
from space.instructions.operand import majors_of
from space.instructions.tma import stride_gap_bytes
from space.instructions.wgmma import Wgmma, wgmma_for
from space.kinds.gemm import Gemm
from space.knobs import KnobValue


@lru_cache(maxsize=1024)
def instruction(problem: Gemm) -> Wgmma:
    """The wgmma instruction of a problem's dtypes; every valid problem has one."""
    row = wgmma_for(problem.dtype_a, problem.dtype_b, problem.dtype_acc)
    if row is None:
        raise AssertionError(f"no wgmma multiplies {problem.dtype}, though space.kinds.gemm.PARTNERS pairs them")
    return row


def row_elements(problem: Gemm, operand: str) -> int:
    """Elements along the contiguous dimension of the problem's `a`, `b` or `c`."""
    if operand == "c":
        return problem.n
    major = majors_of(problem.layout)[operand == "b"]
    return problem.k if major == "k" else problem.m if operand == "a" else problem.n


def needs_packing(problem: Gemm, operand: str) -> bool:
    """Whether a copy pass must make the problem's `a` or `b` K-major and aligned before the kernel can read it.

    TMA needs rows at multiples of 16 bytes, where the matrices of a batch then are too. wgmma reads MN-major operands
    only if they are 16-bit.
    """
    if stride_gap_bytes(row_elements(problem, operand) * input_bytes(problem)):
        return True
    return majors_of(problem.layout)[operand == "b"] == "mn" and not instruction(problem).transposes


def operand_streamed(problem: Gemm) -> Literal["a", "b"]:
    """The problem's operand with more rows, which few rows of the other one meet: its weights."""
    return "b" if problem.m <= problem.n else "a"


def pitch_bytes(problem: Gemm, operand: str) -> int:
    """Bytes from one row to the next of the `a` or `b` that the kernel reads.

    Packed rows start at L2 lines: a 128-byte row of a box then touches one line, not two.
    """
    size = input_bytes(problem)
    if needs_packing(problem, operand):
        return -(-problem.k * size // LINE_BYTES) * LINE_BYTES
    return row_elements(problem, operand) * size


@lru_cache(maxsize=1024)
def lies_mn_major(problem: Gemm, operand: str) -> bool:
    """Whether the kernel reads the problem's `a` or `b` MN-major; a packed operand is K-major."""
    return majors_of(problem.layout)[operand == "b"] == "mn" and not needs_packing(problem, operand)


def mn_major_a(c: Columns) -> BoolColumn:
    """Whether the kernel's A is MN-major."""
    return _mn_major(c)[0]


def mn_major_b(c: Columns) -> BoolColumn:
    """Whether the kernel's B is MN-major."""
    return _mn_major(c)[1]


@kept
def _mn_major(c: Columns) -> tuple[BoolColumn, BoolColumn]:
    a, b = (lies_mn_major(c.problem, operand) for operand in "ab")
    if a == b:
        return np.asarray(a), np.asarray(b)
    swapped = c["swap_ab"] == 1
    return swapped != a, swapped != b


def problem_constants(problem: Gemm, config: Config) -> dict[str, KnobValue]:
    """Members of the kernel's `Config` struct that follow from the problem: dtypes, packing and the epilogue."""
    a, b = (problem.dtype_b, problem.dtype_a) if config["swap_ab"] else (problem.dtype_a, problem.dtype_b)
    constants: dict[str, KnobValue] = {
        "packs": int(needs_packing(problem, "a") or needs_packing(problem, "b")),
        "element_bytes": input_bytes(problem),
        "input_a": a,
        "input_b": b,
        "output": problem.dtype_c,
        "integers": int(problem.dtype_acc == "s32"),
        "promoted": int(problem.numerics == "promoted"),
        "rows_anywhere": int(not config["swap_ab"] and rows_anywhere(problem)),
    }
    return constants | epilogue_constants(problem)
