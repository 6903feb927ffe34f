"""Copies: one set of a problem's operands on the device, as launchers take it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from space.kinds.gemm import Gemm
from space.problem import DTYPE_BYTES

#: The copy type of a problem kind: its own runtime makes it, launchers of the kind take it.
OwnCopy: TypeAlias = Any


class Copy(NamedTuple):
    """One set of operands of a GEMM: addresses of dense arrays, 256-byte aligned where `Operands` made them.

    Attributes:
        a: [batch][M][K] of dtype_a for layouts `n?`, [batch][K][M] for `t?`.
        b: [batch][N][K] of dtype_b for layouts `?t`, [batch][K][N] for `?n`.
        c: [batch][M][N] of dtype_c, written only.
        source: the C that beta scales, shaped and typed as C, elsewhere than `c`; 0 without beta.
        bias: [N] of `Gemm.dtype_bias`, the same for every product of the batch; 0 without bias.
        alpha, beta: exact in f32; 1 and 0 where the epilogue has none.
        scale_a, scale_b: f32 scales of A and B, one each or [M] and [N]; 0 where the epilogue has none.
    """

    a: int
    b: int
    c: int
    source: int = 0
    bias: int = 0
    alpha: float = 1.0
    beta: float = 0.0
    scale_a: int = 0
    scale_b: int = 0


def element_bytes(problem: Gemm) -> dict[str, int]:
    """Bytes of an element of each array of `Copy` by its name, which every address is a multiple of; scales only where
    the problem has some."""
    size, size_c = DTYPE_BYTES[problem.dtype_a], DTYPE_BYTES[problem.dtype_c]
    found = {"a": size, "b": size, "c": size_c, "source": size_c, "bias": DTYPE_BYTES[problem.dtype_bias]}
    return found | dict.fromkeys(("scale_a", "scale_b") if problem.scales else (), DTYPE_BYTES["f32"])


@dataclass(frozen=True, slots=True)
class Strides:
    """How an operand lies whose lines are apart, in elements; lines are rows, or columns where these are contiguous.

    Attributes:
        line, matrix: from line to line, and from matrix to matrix of a batch; multiples of 16 bytes.
    """

    line: int
    matrix: int
