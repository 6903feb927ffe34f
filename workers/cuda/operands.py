"""Operands of one problem: random inputs and guarded outputs, in as many copies as it takes to keep L2 cold.

A launcher takes one copy at a time: addresses of dense arrays in the problem's own dtypes and layout. All copies of a
problem hold the same data, so that verifying one of them verifies all.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cuda.bindings import driver as cu

from space.problem import DTYPE_BYTES, Problem, Role
from workers.cuda.copies import OwnCopy
from workers.cuda.driver import Buffer, Stream, check
from workers.cuda.kinds import runtime_of
from workers.cuda.toolbox import ELEMENTS, GuardZone, Toolbox, pointer
from workers.measurement import ROTATION_BYTES

#: Bytes before and after each array. No kernel may write them, and what a kernel reads of them shows in its output.
GUARD_BYTES: Final = 65_536
#: Arrays start at multiples of this, as every allocator's do.
ALIGN_BYTES: Final = 256
#: Operands are rotated through this many times the size of L2 at least, and through `ROTATION_BYTES` if a replay's
#: launches read as much.
COLD_FACTOR: Final = 3
#: Share of the device's free memory that operands may use.
MEMORY_SHARE: Final = 0.75
MAX_COPIES: Final = 160

#: Around outputs, where only writes matter.
_GUARD_PATTERN: Final = 0x5AC35AC3
#: Around inputs: NaN in every float format, and the ends of the integer ranges, so that a read beyond an input shows in
#: the output.
_BEYOND: Final = {"int8": 0x80808080, "uint8": 0xFFFFFFFF, "s32": 0x7F7F7F7F}
_NAN: Final = 0xFFFFFFFF
#: In outputs before a launch: NaN, or numbers that differ from run to run, so that an unwritten element shows.
_POISONS: Final = (0xFFFFFFFF, 0x7FFF7FFF)
_INTEGER_POISONS: Final = (0x80808080, 0x7F7F7F7F)


@dataclass(frozen=True, slots=True)
class Part:
    """One array of a copy.

    Attributes:
        name, role, dtype, elements: of the operand.
        offset: bytes from the start of the copy's memory.
        beyond: pattern in the guard zones around it.
    """

    name: str
    role: Role
    dtype: str
    elements: int
    offset: int
    beyond: int

    @property
    def size_bytes(self) -> int:
        """Without guards."""
        return self.elements * DTYPE_BYTES[self.dtype]


def parts_of(problem: Problem) -> tuple[Part, ...]:
    """The arrays of a copy, each with a guard zone of at least `GUARD_BYTES` on either side."""
    parts, offset = [], GUARD_BYTES
    for operand in problem.operands():
        beyond = _GUARD_PATTERN if operand.role == "output" else _BEYOND.get(operand.dtype, _NAN)
        part = Part(operand.name, operand.role, operand.dtype, operand.elements, offset, beyond)
        parts.append(part)
        # Two zones follow: one after this array, one before the next.
        offset = -(-(offset + part.size_bytes) // ALIGN_BYTES) * ALIGN_BYTES + 2 * GUARD_BYTES
    return tuple(parts)


def copy_bytes(parts: tuple[Part, ...]) -> int:
    """Memory of one copy, guards included."""
    last = parts[-1]
    return -(-(last.offset + last.size_bytes) // ALIGN_BYTES) * ALIGN_BYTES + GUARD_BYTES


def poison_of(dtype: str, turn: int) -> int:
    """Four bytes that no correct result holds everywhere, different in each turn."""
    poisons = _INTEGER_POISONS if dtype in ("s32", "int8") else _POISONS
    return poisons[turn % len(poisons)]


def cold_copies(read_bytes: int, l2_bytes: int, launches: int = 1) -> int:
    """How many copies keep L2 cold, if each launch reads one whole: none is still in L2 when its turn comes again.

    Args:
        launches: of a replay, which more copies must not make longer.
    """
    return max(-(-COLD_FACTOR * l2_bytes // read_bytes) + 1, min(-(-ROTATION_BYTES // read_bytes), launches))


class Operands:
    """Everything that candidates of one problem read and write, and the references to compare with.

    Args:
        launches: of a replay.

    Attributes:
        output: the array that is compared.
        copies: timing rotates through them; the first two are verified.
        reference: of the copies.
        probe, probe_reference: operands whose sums are exact, where the bounds alone would hide a fault
            (see `Runtime.probes`); None elsewhere.
    """

    def __init__(
        self, problem: Problem, seed: int, tools: Toolbox, stream: Stream, l2_bytes: int, launches: int = 1
    ) -> None:
        self.problem = problem
        self._seed, self._tools, self._stream = seed, tools, stream
        self._parts, self._runtime = parts_of(problem), runtime_of(problem)
        (self.output,) = (part for part in self._parts if part.role == "output")
        self._buffers: dict[OwnCopy, Buffer] = {}
        probing = self._runtime.probes(problem)
        self.reference = self._runtime.reference(problem, tools)
        self.probe_reference = self._runtime.reference(problem, tools, exact_sums=True) if probing else None
        self.probe = self._copy() if probing else None
        free_bytes, _ = check("cuMemGetInfo", cu.cuMemGetInfo())
        room = int(free_bytes * MEMORY_SHARE) // copy_bytes(self._parts)
        wanted = min(cold_copies(problem.min_bytes, l2_bytes, launches), room, MAX_COPIES)
        self.copies = [self._copy() for _ in range(max(2, wanted))]
        self.refresh()

    def refresh(self) -> None:
        """Writes everything anew: a wrong kernel may have written anywhere."""
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

    def output_address(self, copy: OwnCopy) -> int:
        """Where a copy's output starts."""
        return self._buffers[copy].address + self.output.offset

    def poison(self, copy: OwnCopy, turn: int) -> None:
        """Overwrites the output with values that no correct result has, different in each turn."""
        self._fill_bytes(self.output_address(copy), self.output.size_bytes, poison_of(self.output.dtype, turn))

    def guards(self, copy: OwnCopy) -> Iterator[GuardZone]:
        """The zones before and after each array of a copy."""
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

    def _copy(self) -> OwnCopy:
        buffer = Buffer.allocate(copy_bytes(self._parts))
        addresses = {part.name: buffer.address + part.offset for part in self._parts}
        copy = self._runtime.copy(self.problem, addresses, self._seed)
        self._buffers[copy] = buffer
        return copy

    def _fill(self, copy: OwnCopy, units: bool) -> None:
        start = self._buffers[copy].address
        for place, part in enumerate(self._parts):
            begin = start + part.offset
            around = -(-part.size_bytes // ALIGN_BYTES) * ALIGN_BYTES + 2 * GUARD_BYTES
            self._fill_bytes(begin - GUARD_BYTES, around, part.beyond)
            if part.role != "output":
                self._tools.run(
                    "fill_random", pointer(begin), ctypes.c_uint64(part.elements),
                    ctypes.c_uint64(8 * self._seed + place), ctypes.c_int(ELEMENTS[part.dtype]),
                    ctypes.c_int(units and part.role == "input"),
                )  # fmt: skip
        self.poison(copy, 0)

    def _fill_bytes(self, address: int, size_bytes: int, pattern: int) -> None:
        self._tools.run("fill_bytes", pointer(address), ctypes.c_uint64(size_bytes), ctypes.c_uint32(pattern))
