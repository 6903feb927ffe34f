"""Outputs under watch: timed launches must write what was verified, copy by copy."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Final

from cuda.bindings import driver as cu

from workers.cuda.driver import Buffer, HostBuffer, Stream, check
from workers.cuda.operands import Operands, poison_of
from workers.cuda.toolbox import Changed, Toolbox, pointer

#: Bytes of a digest.
_DIGEST_BYTES: Final = 8
#: Candidates that can be told apart between two looks at the differences.
SLOTS: Final = 64


@dataclass(frozen=True, slots=True)
class Difference:
    """Outputs that differ from what was verified.

    Attributes:
        copies: how many, over all comparisons.
        of: outputs of one comparison.
        first: index of the first one.
    """

    copies: int
    of: int
    first: int

    def text(self, launches: int) -> str:
        """One sentence.

        Args:
            launches: how many ran between two comparisons; they take the copies in turn, the last one the last copy.
        """
        number = launches - self.of + self.first + 1
        return (
            f"right when verified, wrong while timed: launch {number:,} of {launches:,}, or one of its like, wrote "
            f"something else than was verified ({self.copies} outputs, {self.of} compared at a time)"
        )


class Outputs:
    """The outputs of all copies of a problem. All copies hold the same data, so all outputs have one digest.

    A digest is a 64-bit sum over the mixed words of an output: a change of one element goes unseen once in 2^64.
    """

    def __init__(self, operands: Operands, tools: Toolbox, stream: Stream) -> None:
        self._tools, self._stream, self._dtype = tools, stream, operands.output.dtype
        addresses = [operands.output_address(copy) for copy in operands.copies]
        self._count, self._size_bytes = len(addresses), operands.output.size_bytes
        listed = (ctypes.c_uint64 * self._count)(*addresses)
        self._addresses = Buffer.allocate(ctypes.sizeof(listed))
        check("cuMemcpyHtoD", cu.cuMemcpyHtoD(self._addresses.address, ctypes.addressof(listed), ctypes.sizeof(listed)))
        self._digests = Buffer.allocate(_DIGEST_BYTES * self._count)
        self._changed = Buffer.allocate(SLOTS * ctypes.sizeof(Changed))
        self._found = HostBuffer(SLOTS * ctypes.sizeof(Changed))
        self._digest = HostBuffer(_DIGEST_BYTES)
        for buffer in (self._digests, self._changed):
            self._clear(buffer)

    def digest_first(self) -> None:
        """Enqueues the digest of the first copy's output, which `verified` returns once the stream has passed it.

        Forgets differences that nobody asked for: those of a candidate that the driver refused while it was timed.
        """
        self._run_digest(1)
        self._digest.fetch(self._digests.address, self._stream)
        for buffer in (self._digests, self._changed):
            self._clear(buffer)

    @property
    def verified(self) -> int:
        """The digest that `digest_first` fetched."""
        return ctypes.c_uint64.from_address(self._digest.address).value

    def poison(self, turn: int = 0) -> None:
        """Enqueues poison for all outputs: an element that no launch writes shows."""
        arguments = ctypes.c_int(self._count), ctypes.c_uint64(self._size_bytes)
        pattern = ctypes.c_uint32(poison_of(self._dtype, turn))
        self._tools.run("poison_outputs", pointer(self._addresses.address), *arguments, pattern)

    def compare(self, verified: int, slot: int = 0) -> None:
        """Enqueues the comparison of all outputs with a verified digest; differences add up until `differences`.

        Args:
            slot: below `SLOTS`; which candidate wrote them.

        Raises:
            ValueError: there is no such slot; the kernel would write beyond them.
        """
        if slot >= SLOTS:
            raise ValueError(f"slot {slot} is none of {SLOTS}: time at most {SLOTS} candidates together")
        self._run_digest(self._count)
        self._tools.run(
            "compare_digests", pointer(self._digests.address), ctypes.c_int(self._count), ctypes.c_uint64(verified),
            pointer(self._changed.address + slot * ctypes.sizeof(Changed)), blocks=1,
        )  # fmt: skip

    def differences(self) -> dict[int, Difference]:
        """The differences that the comparisons found since the last call, by slot; waits for the stream."""
        self._found.fetch(self._changed.address, self._stream)
        self._clear(self._changed)
        self._stream.synchronize()
        found = (Changed * SLOTS).from_address(self._found.address)
        return {
            slot: Difference(one.copies, self._count, ~one.first & 0xFFFFFFFF)
            for slot, one in enumerate(found)
            if one.copies
        }

    def free(self) -> None:
        """Gives memory back."""
        for held in (self._addresses, self._digests, self._changed, self._found, self._digest):
            held.free()

    def _run_digest(self, copies: int) -> None:
        self._tools.run(
            "digest_outputs", pointer(self._addresses.address), ctypes.c_int(copies),
            ctypes.c_uint64(self._size_bytes), pointer(self._digests.address),
        )  # fmt: skip

    def _clear(self, buffer: Buffer) -> None:
        call = "cuMemsetD8Async"
        check(call, cu.cuMemsetD8Async(buffer.address, 0, buffer.size_bytes, self._stream.handle))
