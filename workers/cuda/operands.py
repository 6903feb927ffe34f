"""Operands of one problem: random A and B, guarded C, in as many copies as it takes to keep L2 cold."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Final

from cuda.bindings import driver as cu

from space.problem import DTYPE_BYTES, Problem
from workers.build import Build
from workers.cuda.driver import Arguments, Buffer, Launch, Module, Stream, check

#: Bytes before and after each C that no kernel may touch.
GUARD_BYTES: Final = 4096
GUARD_PATTERN: Final = 0x5AC35AC3
#: Two bf16 NaNs.
POISON_PATTERN: Final = 0xFFFFFFFF
#: Operands are rotated past this many times L2.
COLD_FACTOR: Final = 3
#: Share of the device's memory that operands may take.
MEMORY_SHARE: Final = 0.6
MOST_COPIES: Final = 160

_THREADS: Final = 256


@dataclass(frozen=True, slots=True)
class Copy:
    """One set of operands. `c` is the address of C itself, inside its guards."""

    a: int
    b: int
    c: int
    c_buffer: Buffer


class Toolbox:
    """The kernels of `workers/kernels/verify`, loaded once a process."""

    def __init__(self, build: Build, stream: Stream, sm_count: int) -> None:
        self._module = Module(build.cubin)
        self._stream = stream
        self._blocks = sm_count * 8
        self._launches: dict[str, Launch] = {}

    def run(self, name: str, *arguments: Any, blocks: int | None = None) -> None:  # noqa: ANN401  (ctypes values)
        """Launches one tool over a grid that fills the device, or over `blocks` blocks."""
        if name not in self._launches:
            self._launches[name] = Launch(self._module.function(name), _THREADS)
        launch = self._launches[name]
        launch.set_grid(blocks or self._blocks)
        launch(self._stream, Arguments(*arguments))


def pointer(address: int) -> ctypes.c_void_p:
    """A device address as a kernel argument."""
    return ctypes.c_void_p(address)


class Operands:
    """Everything that candidates of one problem read and write, and the reference that they are held against.

    All copies hold the same data: verifying one stands for the others.
    """

    def __init__(
        self, problem: Problem, seed: int, tools: Toolbox, stream: Stream, l2_bytes: int, memory_bytes: int
    ) -> None:
        self.problem = problem
        self._tools, self._stream = tools, stream
        self._buffers: list[Buffer] = []
        m, n, k = problem.m, problem.n, problem.k
        size = DTYPE_BYTES[problem.dtype_a]
        a_bytes, b_bytes, c_bytes = m * k * size, n * k * size, m * n * DTYPE_BYTES[problem.dtype_c]
        fixed = 4 * m * n + 4 * (m + n)
        room = int((memory_bytes * MEMORY_SHARE - fixed) // (a_bytes + b_bytes + c_bytes + 2 * GUARD_BYTES))
        wanted = -(-COLD_FACTOR * l2_bytes // problem.min_bytes) + 1
        count = max(2, min(wanted, room, MOST_COPIES))
        self.copies = [self._copy(a_bytes, b_bytes, c_bytes) for _ in range(count)]
        self._fill(seed, a_bytes, b_bytes)
        self.reference = self._allocate(4 * m * n)
        self.norms_a, self.norms_b = self._allocate(4 * m), self._allocate(4 * n)
        self._compute_reference()
        stream.synchronize()

    def poison(self, copy: Copy) -> None:
        """Guards around C as they must stay, NaN inside it."""
        c_words = self.problem.m * self.problem.n * DTYPE_BYTES[self.problem.dtype_c] // 4
        words = copy.c_buffer.size_bytes // 4
        self._tools.run(
            "fill_words", pointer(copy.c_buffer.address), ctypes.c_uint64(words), ctypes.c_uint32(GUARD_PATTERN)
        )
        self._tools.run("fill_words", pointer(copy.c), ctypes.c_uint64(c_words), ctypes.c_uint32(POISON_PATTERN))

    def guards(self, copy: Copy) -> list[tuple[int, int]]:
        """Address and words of the zones before and after C."""
        c_bytes = self.problem.m * self.problem.n * DTYPE_BYTES[self.problem.dtype_c]
        after = copy.c + -(-c_bytes // 4) * 4
        end = copy.c_buffer.address + copy.c_buffer.size_bytes
        return [(copy.c_buffer.address, GUARD_BYTES // 4), (after, (end - after) // 4)]

    def free(self) -> None:
        """Gives all memory back."""
        for buffer in self._buffers:
            buffer.free()
        self._buffers.clear()

    def _allocate(self, size_bytes: int) -> Buffer:
        buffer = Buffer.allocate(size_bytes)
        self._buffers.append(buffer)
        return buffer

    def _copy(self, a_bytes: int, b_bytes: int, c_bytes: int) -> Copy:
        a, b = self._allocate(a_bytes), self._allocate(b_bytes)
        c = self._allocate(-(-c_bytes // 256) * 256 + 2 * GUARD_BYTES)
        return Copy(a.address, b.address, c.address + GUARD_BYTES, c)

    def _fill(self, seed: int, a_bytes: int, b_bytes: int) -> None:
        first = self.copies[0]
        size = DTYPE_BYTES[self.problem.dtype_a]
        for address, bytes_, stream_id in ((first.a, a_bytes, 2 * seed), (first.b, b_bytes, 2 * seed + 1)):
            count = ctypes.c_uint64(bytes_ // size)
            self._tools.run("fill_normal_bf16", pointer(address), count, ctypes.c_uint64(stream_id))
        for copy in self.copies[1:]:
            for to, source, bytes_ in ((copy.a, first.a, a_bytes), (copy.b, first.b, b_bytes)):
                check("cuMemcpyDtoDAsync", cu.cuMemcpyDtoDAsync(to, source, bytes_, self._stream.handle))
        for copy in self.copies:
            self.poison(copy)

    def _compute_reference(self) -> None:
        p, first = self.problem, self.copies[0]
        m, n, k = ctypes.c_int(p.m), ctypes.c_int(p.n), ctypes.c_int(p.k)
        tiles = -(-p.m // 64) * -(-p.n // 64)
        operands = pointer(first.a), pointer(first.b), pointer(self.reference.address)
        self._tools.run("reference_nt_bf16", *operands, m, n, k, blocks=tiles)
        self._tools.run("row_norms_bf16", pointer(first.a), pointer(self.norms_a.address), m, k)
        self._tools.run("row_norms_bf16", pointer(first.b), pointer(self.norms_b.address), n, k)
