"""Verification: every element of C against the float64 reference, twice, with poison and guards."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from dataclasses import dataclass

from cuda.bindings import driver as cu

from workers.cuda.driver import Buffer, HostBuffer, Stopwatch, Stream, check
from workers.cuda.operands import Copy, Operands
from workers.cuda.reference import METHOD, Reference
from workers.cuda.toolbox import ELEMENTS, CheckResult, GuardZone, Toolbox, pointer
from workers.measurement import Verification


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the checks found.

    Attributes:
        reason: empty when all is well.
        once_us: what one launch took, alone and outside a graph: good for comparing candidates, not for telling.
        whole_us: what poisoning, launching and checking took.
    """

    verification: Verification
    reason: str
    once_us: float
    whole_us: float


class Verifier:
    """Runs a candidate twice on the same operands and judges both results; a third time where sums are inexact."""

    def __init__(self, operands: Operands, tools: Toolbox, stream: Stream) -> None:
        self._operands, self._tools, self._stream = operands, tools, stream
        self._result = Buffer.allocate(ctypes.sizeof(CheckResult))
        self._found = HostBuffer(ctypes.sizeof(CheckResult))
        self._whole, self._once = Stopwatch(), Stopwatch()
        self._verified = [*operands.copies[:2], *filter(None, [operands.probe])]
        zones = [zone for copy in self._verified for zone in operands.guards(copy)]
        self._zones, self._zone_count = Buffer.allocate(ctypes.sizeof(GuardZone) * len(zones)), len(zones)
        listed = (GuardZone * len(zones))(*zones)
        check("cuMemcpyHtoD", cu.cuMemcpyHtoD(self._zones.address, ctypes.addressof(listed), ctypes.sizeof(listed)))

    def verify(self, launch: Callable[[Copy], None], meanwhile: Callable[[], None] = lambda: None) -> Verdict:
        """Judges a kernel. One that is wrong may have written anywhere: `Operands.refresh` puts things right.

        Args:
            launch: runs it once on a copy's operands, on the stream.
            meanwhile: called once when the GPU has got to work.

        Raises:
            CudaError: the kernel itself failed.
        """
        with self._whole.around(self._stream):
            for turn, copy in enumerate(self._verified):
                self._operands.poison(copy, turn)
                with self._once.around(self._stream):
                    launch(copy)
            self._check()
        self._found.fetch(self._result.address, self._stream)
        meanwhile()
        self._stream.synchronize()
        return self._judge(CheckResult.from_address(self._found.address))

    def free(self) -> None:
        """Gives memory back."""
        for held in (self._result, self._zones, self._found):
            held.free()
        self._whole.destroy()
        self._once.destroy()

    def _check(self) -> None:
        ops, tools, result = self._operands, self._tools, pointer(self._result.address)
        size = self._result.size_bytes
        check("cuMemsetD8Async", cu.cuMemsetD8Async(self._result.address, 0, size, self._stream.handle))
        first, second = ops.copies[:2]
        self._compare(first, ops.reference)
        if ops.probe is not None and ops.probe_reference is not None:
            self._compare(ops.probe, ops.probe_reference)
        element, count = ctypes.c_int(ELEMENTS[ops.problem.dtype_c]), ctypes.c_uint64(ops.reference.elements)
        tools.run("count_differences", pointer(first.c), pointer(second.c), count, element, result)
        zones, zone_count = pointer(self._zones.address), ctypes.c_int(self._zone_count)
        tools.run("check_guards", zones, zone_count, result, blocks=self._zone_count)

    def _compare(self, copy: Copy, reference: Reference) -> None:
        self._tools.run(
            "compare_output", pointer(copy.c), ctypes.c_int(ELEMENTS[self._operands.problem.dtype_c]),
            pointer(reference.values), pointer(reference.bounds), ctypes.c_uint64(reference.elements),
            pointer(self._result.address),
        )  # fmt: skip

    def _judge(self, found: CheckResult) -> Verdict:
        problem = self._operands.problem
        (worst,) = struct.unpack("<f", struct.pack("<I", found.worst_ratio))
        bad = found.mismatches + found.differences + found.guard_bytes
        verification = Verification(self._operands.reference.elements, int(bad), float(worst), METHOD)
        reasons = []
        if found.mismatches:
            place = ~found.first_bad & (2**64 - 1)
            row, column = place // problem.n, place % problem.n
            product = f" of product {row // problem.m}" if problem.batch > 1 else ""
            reasons.append(
                f"{found.mismatches:,} of {verification.elements:,} elements are outside their bound, the first at "
                f"row {row % problem.m}, column {column}{product}, the worst {worst:.3g} times it"
            )
        if found.differences:
            reasons.append(f"{found.differences:,} elements differ between two runs on the same operands")
        if found.guard_bytes:
            reasons.append(f"{found.guard_bytes:,} bytes outside C were overwritten")
        return Verdict(verification, "; ".join(reasons), self._once.us, self._whole.us)
