"""Apart: checks that a kernel writes the same bits on operands with gaps between rows as on dense ones.

No torch is needed for that: random operands are laid out both ways, with NaN between the lines, and both results are
compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

import numpy as np

from space.kinds.gemm import Gemm
from space.problem import DTYPE_BYTES, Operand
from workers.cuda.copies import Strides

#: Bits of an element that stay random, and those that are set, so that numbers are between 1 and 2 or -2 and -1.
_BITS: Final[dict[str, tuple[str, int, int]]] = {
    "bf16": ("u2", 0x807F, 0x3F80), "fp16": ("u2", 0x83FF, 0x3C00), "tf32": ("u4", 0x807FE000, 0x3F800000),
    "f32": ("u4", 0x807FFFFF, 0x3F800000),
    "fp8_e4m3": ("u1", 0x87, 0x38), "fp8_e5m2": ("u1", 0x83, 0x3C), "int8": ("u1", 0x83, 0), "uint8": ("u1", 0x03, 0),
}  # fmt: skip
#: Between lines: NaN in every float format.
_BETWEEN: Final = 0xFF
_SEED: Final = 20_011

#: Runs the kernel on addresses of a, b, c and of scales where the problem has some, and waits for it.
Run = Callable[..., None]


class Memory(Protocol):
    """A GPU's memory."""

    def put(self, content: np.ndarray) -> int:
        """The address of a copy of these bytes."""

    def get(self, address: int, size_bytes: int) -> bytes:
        """What is there."""

    def free(self) -> None:
        """Frees everything that was put."""


def difference(problem: Gemm, strides: Mapping[str, Strides], dense: Run, apart: Run, memory: Memory) -> str:
    """The difference between results on operands that lie apart and on dense ones; empty if all bits agree.

    Args:
        dense: the kernel on dense operands; what was measured.
        apart: the kernel on operands that lie as `strides` says.
    """
    random = np.random.default_rng(_SEED)
    by_name = {each.name: each for each in problem.operands()}
    matrices = {name: _random(each, random) for name, each in by_name.items() if each.role in ("input", "scale")}
    for name, gaps in strides.items():
        # Matrices of a batch may share lines, as windows over one buffer do.
        matrices[name] = _seen(_laid_out(matrices[name], gaps), matrices[name], gaps).copy()
    size = by_name["c"].elements * DTYPE_BYTES[problem.dtype_c]
    try:
        results = []
        for run, lies in ((dense, {}), (apart, strides)):
            a, b, *scales = (memory.put(_laid_out(each, lies.get(name))) for name, each in matrices.items())
            c = memory.put(np.full(size, _BETWEEN, np.uint8))
            run(a, b, c, *scales)
            results.append(np.frombuffer(memory.get(c, size), np.uint8))
    finally:
        memory.free()
    wrong = int((results[0] != results[1]).sum())
    return f"{wrong:,} of {size:,} bytes of C differ from those of dense operands" if wrong else ""


def _random(operand: Operand, random: np.random.Generator) -> np.ndarray:
    """Elements of [batch, lines, width] as words."""
    kind, free, fixed = _BITS[operand.dtype]
    lines, width = (operand.columns, operand.rows) if operand.column_major else (operand.rows, operand.columns)
    made = random.integers(0, np.iinfo(kind).max, (operand.batch, lines, width), dtype=kind, endpoint=True)
    found: np.ndarray = made & np.array(free, kind) | np.array(fixed, kind)
    return found


def _laid_out(matrices: np.ndarray, lies: Strides | None) -> np.ndarray:
    if lies is None:
        return matrices.reshape(-1).view(np.uint8)
    batch, lines, width = matrices.shape
    size = matrices.itemsize
    held = np.full(((batch - 1) * lies.matrix + (lines - 1) * lies.line + width) * size, _BETWEEN, np.uint8)
    _seen(held, matrices, lies)[...] = matrices
    return held


def _seen(held: np.ndarray, matrices: np.ndarray, lies: Strides) -> np.ndarray:
    """What `held` has where matrices of this shape lie."""
    size = matrices.itemsize
    return np.lib.stride_tricks.as_strided(
        held.view(matrices.dtype), matrices.shape, (lies.matrix * size, lies.line * size, size)
    )
