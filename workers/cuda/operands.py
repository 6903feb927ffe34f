"""Operands of one problem: random inputs, a guarded output, in as many copies as it takes to keep L2 cold.

What a launcher gets is a `Copy`: addresses of dense arrays in the problem's own dtypes and layout. All copies of a
problem hold the same data, so that verifying one stands for the others.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from cuda.bindings import driver as cu

from space.kinds.gemm import Gemm
from space.problem import DTYPE_BYTES
from workers.cuda.driver import Buffer, Stream, check
from workers.cuda.reference import Reference
from workers.cuda.toolbox import ELEMENTS, GuardZone, Toolbox, pointer

#: Bytes before and after each array that no kernel may write, and that show when a kernel reads them.
GUARD_BYTES: Final = 65_536
#: Arrays start at multiples of this, as those of every allocator do.
ALIGN_BYTES: Final = 256
#: Operands are rotated past this many times L2.
COLD_FACTOR: Final = 3
#: Share of the device's free memory that operands may take.
MEMORY_SHARE: Final = 0.75
MOST_COPIES: Final = 160

#: Around C, where only writes are looked for.
_GUARD_PATTERN: Final = 0x5AC35AC3
#: Around inputs: NaN in every float format, and the ends of the integer ranges, so that a read beyond shows in C.
_BEYOND: Final = {"int8": 0x80808080, "uint8": 0xFFFFFFFF, "s32": 0x7F7F7F7F}
_NAN: Final = 0xFFFFFFFF
#: In C before a launch: NaN, or numbers that differ from run to run, so that an unwritten element shows.
_POISONS: Final = (0xFFFFFFFF, 0x7FFF7FFF)
_INTEGER_POISONS: Final = (0x80808080, 0x7F7F7F7F)


class Copy(NamedTuple):
    """One set of operands: addresses of dense arrays on the device; 256-byte aligned where `Operands` made them.

    Attributes:
        a: [batch][M][K] of dtype_a for layouts `n?`, [batch][K][M] for `t?`.
        b: [batch][N][K] of dtype_b for layouts `?t`, [batch][K][N] for `?n`.
        c: [batch][M][N] of dtype_c, written only.
        source: the C that beta scales, shaped and typed as C, in another place than `c`; 0 without beta.
        bias: [N] of `Problem.dtype_bias`, the same for every product of the batch; 0 without bias.
        alpha, beta: exact in f32; 1 and 0 where the epilogue has none.
    """

    a: int
    b: int
    c: int
    source: int
    bias: int
    alpha: float
    beta: float


@dataclass(frozen=True, slots=True)
class Part:
    """One array of a copy: where it starts in the copy's memory, and what stands around it."""

    name: str
    dtype: str
    elements: int
    offset: int
    beyond: int

    @property
    def size_bytes(self) -> int:
        """Without guards."""
        return self.elements * DTYPE_BYTES[self.dtype]


def parts_of(problem: Gemm) -> tuple[Part, ...]:
    """The arrays of a copy, each with a guard zone of at least `GUARD_BYTES` on either side."""
    m, n, k, batch = problem.m, problem.n, problem.k, problem.batch
    wanted = [("a", problem.dtype_a, m * k * batch), ("b", problem.dtype_b, n * k * batch)]
    wanted.append(("c", problem.dtype_c, m * n * batch))
    if "beta" in problem.epilogue_parts:
        wanted.append(("source", problem.dtype_c, m * n * batch))
    if "bias" in problem.epilogue_parts:
        wanted.append(("bias", problem.dtype_bias, n))
    parts, offset = [], GUARD_BYTES
    for name, dtype, elements in wanted:
        beyond = _GUARD_PATTERN if name == "c" else _BEYOND.get(dtype, _NAN)
        part = Part(name, dtype, elements, offset, beyond)
        parts.append(part)
        # Two zones follow: one after this array, one before the next.
        offset = -(-(offset + part.size_bytes) // ALIGN_BYTES) * ALIGN_BYTES + 2 * GUARD_BYTES
    return tuple(parts)


def copy_bytes(parts: tuple[Part, ...]) -> int:
    """Memory of one copy, guards included."""
    last = parts[-1]
    return -(-(last.offset + last.size_bytes) // ALIGN_BYTES) * ALIGN_BYTES + GUARD_BYTES


def cold_copies(read_bytes: int, l2_bytes: int) -> int:
    """How many copies, each read whole by a launch, it takes that none is still in L2 when its turn comes again."""
    return -(-COLD_FACTOR * l2_bytes // read_bytes) + 1


def scalars(problem: Gemm, seed: int) -> tuple[float, float]:
    """alpha and beta: multiples of 1/64 from 0.5 to 1.5, drawn from the seed.

    alpha carries a power of two beside where C would overflow without it: behind whole numbers, and in 8 bits.
    """
    alpha = (32 + seed % 65) / 64 if "alpha" in problem.epilogue_parts else 1.0
    beta = (32 + seed // 65 % 65) / 64 if "beta" in problem.epilogue_parts else 0.0
    whole = problem.dtype_acc == "s32"
    if "alpha" in problem.epilogue_parts and (whole or problem.dtype_c.startswith("fp8")) and problem.dtype_c != "s32":
        deviation = math.sqrt(problem.k) * (74.0**2 if whole else 1.0)
        wanted = {"int8": 32.0, "fp8_e4m3": 8.0, "fp8_e5m2": 8.0}.get(problem.dtype_c, 1.0)
        alpha *= 2.0 ** round(math.log2(wanted / deviation))
    return alpha, beta


class Operands:
    """Everything that candidates of one problem read and write, and the references that they are held against.

    Attributes:
        copies: rotated through by timing; the first two are verified.
        reference: of the copies.
        probe, probe_reference: operands whose sums are exact, for the class whose bound alone would hide a fault
            (see `workers.cuda.bounds.accumulation_share`); None elsewhere.
    """

    def __init__(self, problem: Gemm, seed: int, tools: Toolbox, stream: Stream, l2_bytes: int) -> None:
        self.problem = problem
        self._seed, self._tools, self._stream = seed, tools, stream
        self._parts = parts_of(problem)
        self._alpha, self._beta = scalars(problem, seed)
        self._buffers: dict[Copy, Buffer] = {}
        probing = problem.dtype_a.startswith("fp8") and problem.numerics == "fast"
        self.reference = Reference(problem, tools)
        self.probe_reference = Reference(problem, tools, exact_sums=True) if probing else None
        self.probe = self._copy() if probing else None
        free_bytes, _ = check("cuMemGetInfo", cu.cuMemGetInfo())
        room = int(free_bytes * MEMORY_SHARE) // copy_bytes(self._parts)
        wanted = min(cold_copies(problem.min_bytes, l2_bytes), room, MOST_COPIES)
        self.copies = [self._copy() for _ in range(max(2, wanted))]
        self.refresh()

    def refresh(self) -> None:
        """Writes everything anew: after a kernel that wrote where it should not, nothing here is to be trusted."""
        first = self.copies[0]
        self._fill(first, units=False)
        for copy in self.copies[1:]:
            size = self._buffers[first].size_bytes
            to, source = self._buffers[copy].address, self._buffers[first].address
            check("cuMemcpyDtoDAsync", cu.cuMemcpyDtoDAsync(to, source, size, self._stream.handle))
        self.reference.compute(first)
        if self.probe is not None and self.probe_reference is not None:
            self._fill(self.probe, units=True)
            self.probe_reference.compute(self.probe)
        self._stream.synchronize()

    def poison(self, copy: Copy, turn: int) -> None:
        """Overwrites C with what no right result looks like, differently from turn to turn."""
        poisons = _INTEGER_POISONS if self.problem.dtype_c in ("s32", "int8") else _POISONS
        c_bytes = self.problem.m * self.problem.n * self.problem.batch * DTYPE_BYTES[self.problem.dtype_c]
        self._fill_bytes(copy.c, c_bytes, poisons[turn % len(poisons)])

    def guards(self, copy: Copy) -> Iterator[GuardZone]:
        """What stands before and after each array of a copy."""
        start = self._buffers[copy].address
        for part in self._parts:
            begin = start + part.offset
            yield GuardZone(begin - GUARD_BYTES, GUARD_BYTES, part.beyond)
            aligned = -(-(begin + part.size_bytes) // ALIGN_BYTES) * ALIGN_BYTES
            end = begin + part.size_bytes
            yield GuardZone(end, aligned + GUARD_BYTES - end, part.beyond)

    def free(self) -> None:
        """Gives all memory back."""
        for buffer in self._buffers.values():
            buffer.free()
        self._buffers.clear()
        for reference in filter(None, (self.reference, self.probe_reference)):
            reference.free()

    def _copy(self) -> Copy:
        buffer = Buffer.allocate(copy_bytes(self._parts))
        at = {part.name: buffer.address + part.offset for part in self._parts}
        copy = Copy(
            at["a"], at["b"], at["c"], at.get("source", 0), at.get("bias", 0), self._alpha, self._beta
        )  # fmt: skip
        self._buffers[copy] = buffer
        return copy

    def _fill(self, copy: Copy, units: bool) -> None:
        start = self._buffers[copy].address
        for place, part in enumerate(self._parts):
            begin = start + part.offset
            around = -(-part.size_bytes // ALIGN_BYTES) * ALIGN_BYTES + 2 * GUARD_BYTES
            self._fill_bytes(begin - GUARD_BYTES, around, part.beyond)
            if part.name != "c":
                self._tools.run(
                    "fill_random", pointer(begin), ctypes.c_uint64(part.elements),
                    ctypes.c_uint64(8 * self._seed + place), ctypes.c_int(ELEMENTS[part.dtype]),
                    ctypes.c_int(units and part.name in "ab"),
                )  # fmt: skip
        self.poison(copy, 0)

    def _fill_bytes(self, address: int, size_bytes: int, pattern: int) -> None:
        self._tools.run("fill_bytes", pointer(address), ctypes.c_uint64(size_bytes), ctypes.c_uint32(pattern))
