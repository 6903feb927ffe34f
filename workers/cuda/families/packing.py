"""The pass that makes an operand K-major and aligned where a kernel can't take its layout."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from space.families.common import input_bytes
from space.instructions.operand import majors_of
from space.kinds.gemm import Gemm
from workers.cuda.copies import Copy
from workers.cuda.driver import Arguments, Launch, Module
from workers.cuda.families.shared import Place, Shared, TensorMap, word

ENTRY: Final = "pack"
THREADS: Final = 256
#: Blocks of the pass on one multiprocessor; each walks over many pieces.
BLOCKS_PER_SM: Final = 8

OperandName = Literal["a", "b"]
#: Descriptors and words that hold one address, as `Place` takes them.
Reads = tuple[Sequence[TensorMap], Sequence[ctypes.c_uint64]]


class PackJob(ctypes.Structure):
    """Mirrors `PackJob` of common/pack.cuh; all zero is nothing to do."""

    _fields_ = (
        ("from_", ctypes.c_void_p), ("to", ctypes.c_void_p), ("rows", ctypes.c_int), ("depth", ctypes.c_int),
        ("pitch", ctypes.c_int), ("batch", ctypes.c_int), ("transposed", ctypes.c_int), ("padding", ctypes.c_int),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Layout:
    """Layout of an operand as the kernel reads it: lines of contiguous elements.

    Attributes:
        columns: contiguous elements per line: K, or M or N where the operand is MN-major.
        lines: lines of one matrix.
        pitch: elements from line to line.
    """

    columns: int
    lines: int
    pitch: int


class Packing:
    """The packing pass of one problem; empty where neither operand needs it.

    Args:
        pitches: bytes from one packed row to the next, of each operand that needs packing.
    """

    def __init__(
        self, problem: Gemm, module: Module, sm_count: int, shared: Shared, pitches: Mapping[OperandName, int]
    ) -> None:
        self._problem, self._pitches = problem, pitches
        self._to: dict[OperandName, int] = {}
        for name, pitch in pitches.items():
            rows = problem.m if name == "a" else problem.n
            self._to[name] = shared.scratch(f"packed_{name}", problem.batch * rows * pitch)
        if self._to:
            self._launch = Launch(module.function(ENTRY), THREADS)
            self._launch.set_grid(BLOCKS_PER_SM * sm_count)

    def address(self, name: OperandName, copy: Copy) -> int:
        """Address at which the kernel reads the problem's `a` or `b`."""
        return self._to.get(name) or (copy.a if name == "a" else copy.b)

    def layout(self, name: OperandName) -> Layout:
        """Layout at that address."""
        p = self._problem
        rows = p.m if name == "a" else p.n
        if name in self._to:
            return Layout(p.k, rows, self._pitch(name))
        if majors_of(p.layout)[name == "b"] == "mn":
            return Layout(rows, p.k, rows)
        return Layout(p.k, rows, p.k)

    def prepare(self, copy: Copy) -> tuple[tuple[Launch, Arguments], ...]:
        """The pass over one copy; empty where there is nothing to pack."""
        return ((self._launch, Arguments(self._job("a", copy), self._job("b", copy))),) if self._to else ()

    def places(self, passes: Sequence[tuple[Launch, Arguments]], read: Mapping[OperandName, Reads]) -> dict[str, Place]:
        """Places of the addresses of the operands and of their packed copies.

        Args:
            passes: of `prepare`.
            read: where the kernel's arguments hold the address that it reads, by operand.
        """
        found = {str(name): Place(*each) for name, each in read.items() if name not in self._to}
        for _, arguments in passes:
            jobs = dict(zip(("a", "b"), arguments.values, strict=True))
            for name in self._to:
                found[name] = Place(words=[word(jobs[name], "from_")])
                maps, words = read[name]
                found[f"packed_{name}"] = Place(maps, [*words, word(jobs[name], "to")])
        return found

    def _pitch(self, name: OperandName) -> int:
        return self._pitches[name] // input_bytes(self._problem)

    def _job(self, name: OperandName, copy: Copy) -> PackJob:
        if name not in self._to:
            return PackJob()
        p = self._problem
        rows, source = (p.m, copy.a) if name == "a" else (p.n, copy.b)
        transposed = majors_of(p.layout)[name == "b"] == "mn"
        return PackJob(source, self._to[name], rows, p.k, self._pitch(name), p.batch, int(transposed), 0)
