"""Verification: every element of the output against the float64 reference, twice, with poison and guards."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from dataclasses import dataclass

from cuda.bindings import driver as cu

from workers.cuda.copies import OwnCopy
from workers.cuda.driver import Buffer, HostBuffer, Stopwatch, Stream, check
from workers.cuda.kinds import runtime_of
from workers.cuda.kinds.runtime import Reference
from workers.cuda.operands import Operands
from workers.cuda.outputs import Outputs
from workers.cuda.toolbox import ELEMENTS, CheckResult, GuardZone, Toolbox, pointer
from workers.measurement import Verification


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of the checks.

    Attributes:
        reason: why the candidate is wrong; empty where it is right.
        once_us: time of one launch, alone and outside a graph: good for comparing candidates, not for publishing.
        whole_us: time of poisoning, launching and checking.
        digest: of the verified output (`workers.cuda.outputs`).
    """

    verification: Verification
    reason: str
    once_us: float
    whole_us: float
    digest: int


class Verifier:
    """Runs a candidate twice on the same operands and judges both results; a third time where there is a probe."""

    def __init__(self, operands: Operands, outputs: Outputs, tools: Toolbox, stream: Stream) -> None:
        self._operands, self._outputs, self._tools, self._stream = operands, outputs, tools, stream
        self._result = Buffer.allocate(ctypes.sizeof(CheckResult))
        self._found = HostBuffer(ctypes.sizeof(CheckResult))
        self._whole, self._once = Stopwatch(), Stopwatch()
        self._verified = [*operands.copies[:2], *filter(None, [operands.probe])]
        zones = [zone for copy in self._verified for zone in operands.guards(copy)]
        self._zones, self._zone_count = Buffer.allocate(ctypes.sizeof(GuardZone) * len(zones)), len(zones)
        listed = (GuardZone * len(zones))(*zones)
        check("cuMemcpyHtoD", cu.cuMemcpyHtoD(self._zones.address, ctypes.addressof(listed), ctypes.sizeof(listed)))

    def verify(self, launch: Callable[[OwnCopy], None], meanwhile: Callable[[], None] = lambda: None) -> Verdict:
        """Judges a kernel. After a wrong one call `Operands.refresh`: it may have written anywhere.

        Args:
            launch: runs it once on a copy's operands, on the stream.
            meanwhile: called once, when the GPU has started.

        Raises:
            CudaError: the kernel itself failed.
        """
        with self._whole.around(self._stream):
            for turn, copy in enumerate(self._verified):
                self._operands.poison(copy, turn)
                with self._once.around(self._stream):
                    launch(copy)
            self._check()
        self._outputs.digest_first()
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
        element, count = ctypes.c_int(ELEMENTS[ops.output.dtype]), ctypes.c_uint64(ops.reference.elements)
        pointers = (pointer(ops.output_address(copy)) for copy in (first, second))
        tools.run("count_differences", *pointers, count, element, result)
        zones, zone_count = pointer(self._zones.address), ctypes.c_int(self._zone_count)
        tools.run("check_guards", zones, zone_count, result, blocks=self._zone_count)

    def _compare(self, copy: OwnCopy, reference: Reference) -> None:
        ops = self._operands
        self._tools.run(
            "compare_output", pointer(ops.output_address(copy)), ctypes.c_int(ELEMENTS[ops.output.dtype]),
            pointer(reference.values), pointer(reference.bounds), ctypes.c_uint64(reference.elements),
            pointer(self._result.address),
        )  # fmt: skip

    def _judge(self, found: CheckResult) -> Verdict:
        problem, reference = self._operands.problem, self._operands.reference
        (worst,) = struct.unpack("<f", struct.pack("<I", found.worst_ratio))
        # An element may be outside on the probe too, and may differ as well.
        outside = min(found.mismatches, reference.elements)
        bad = min(outside + found.differences + found.guard_bytes, reference.elements)
        verification = Verification(reference.elements, bad, float(worst), reference.method)
        reasons = []
        if outside:
            place = runtime_of(problem).place(problem, ~found.first_bad & (2**64 - 1))
            reasons.append(
                f"{outside:,} of {reference.elements:,} elements are outside their bound, the first at "
                f"{place}, the worst {worst:.3g} times it"
            )
        if found.differences:
            reasons.append(f"{found.differences:,} elements differ between two runs on the same operands")
        if found.guard_bytes:
            reasons.append(f"{found.guard_bytes:,} bytes outside {self._operands.output.name.upper()} were overwritten")
        return Verdict(verification, "; ".join(reasons), self._once.us, self._whole.us, self._outputs.verified)
