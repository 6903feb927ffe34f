"""Verification: every element of C against the float64 reference, twice, with poison and guards."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cuda.bindings import driver as cu

from workers.cuda.driver import Buffer, Stream, check, copy_to_host
from workers.cuda.operands import GUARD_PATTERN, Copy, Operands, Toolbox, pointer
from workers.measurement import Verification

#: Rounding f32 to bf16 is off by at most this share of the value (8 significant bits, to nearest).
BF16_ROUNDING: Final = 2.0**-8
#: One accumulation step of the tensor core is off by at most this share of its largest term.
STEP_ERROR: Final = 2.0**-22
#: Products that one step adds up.
STEP_K: Final = 16
#: Partial sums stay within this many standard deviations; 2^30 elements exceed it with chance 1e-6.
SIGMAS: Final = 8.0

REFERENCE: Final = "float64 on the CUDA cores"


class CheckResult(ctypes.Structure):
    """`CheckResult` of `workers/kernels/verify/entry.cuh`."""

    _fields_ = (
        ("mismatches", ctypes.c_uint64),
        ("first_bad", ctypes.c_uint64),
        ("differences", ctypes.c_uint64),
        ("guard_words", ctypes.c_uint64),
        ("worst_ratio", ctypes.c_uint32),
    )


def accumulation_bound(k: int) -> float:
    """Bound on the accumulation error of one element, as a share of ‖a_i‖·‖b_j‖.

    Products of bf16 are exact in f32. K/16 steps follow each other; each is off by at most `STEP_ERROR` of
    the largest of its terms, truncation included. For operands with independent entries of mean zero, as
    ours are, no partial sum exceeds 8 standard deviations, and a standard deviation of the whole sum is
    ‖a‖·‖b‖/√K. So: steps · 2^-22 · 8/√K, and one step more for the reference's own rounding to f32.
    """
    steps = math.ceil(k / STEP_K) + 1
    return steps * STEP_ERROR * SIGMAS / math.sqrt(k)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the checks found; `reason` is empty when all is well."""

    verification: Verification
    reason: str


class Verifier:
    """Runs a candidate twice on the same operands and judges both results."""

    def __init__(self, operands: Operands, tools: Toolbox, stream: Stream) -> None:
        self._operands, self._tools, self._stream = operands, tools, stream
        self._result = Buffer.allocate(ctypes.sizeof(CheckResult))

    def verify(self, launch: Callable[[Copy], None]) -> Verdict:
        """Judges a kernel.

        Args:
            launch: runs it once on a copy's operands, on the stream.

        Raises:
            CudaError: the kernel itself failed.
        """
        first, second = self._operands.copies[:2]
        for copy in (first, second):
            self._operands.poison(copy)
            launch(copy)
        self._stream.synchronize()
        return self._judge(self._check(first, second))

    def free(self) -> None:
        """Gives memory back."""
        self._result.free()

    def _check(self, first: Copy, second: Copy) -> CheckResult:
        problem, ops, result = self._operands.problem, self._operands, pointer(self._result.address)
        clean = CheckResult(first_bad=2**64 - 1)
        check("cuMemcpyHtoD", cu.cuMemcpyHtoD(self._result.address, ctypes.addressof(clean), ctypes.sizeof(clean)))
        m, n = ctypes.c_int(problem.m), ctypes.c_int(problem.n)
        bounds = ctypes.c_float(BF16_ROUNDING), ctypes.c_float(accumulation_bound(problem.k))
        self._tools.run(
            "compare_bf16", pointer(first.c), pointer(ops.reference.address), pointer(ops.norms_a.address),
            pointer(ops.norms_b.address), m, n, *bounds, result,
        )  # fmt: skip
        count = ctypes.c_uint64(problem.m * problem.n)
        self._tools.run("count_differences", pointer(first.c), pointer(second.c), count, result)
        for copy in (first, second):
            for address, words in ops.guards(copy):
                self._tools.run(
                    "check_guard", pointer(address), ctypes.c_uint64(words), ctypes.c_uint32(GUARD_PATTERN), result
                )
        self._stream.synchronize()
        found = CheckResult()
        copy_to_host(self._result.address, found)
        return found

    def _judge(self, found: CheckResult) -> Verdict:
        problem = self._operands.problem
        (worst,) = struct.unpack("<f", struct.pack("<I", found.worst_ratio))
        bad = found.mismatches + found.differences + found.guard_words
        verification = Verification(problem.m * problem.n, int(bad), float(worst), REFERENCE)
        reasons = []
        if found.mismatches:
            where = f"row {found.first_bad // problem.n}, column {found.first_bad % problem.n}"
            reasons.append(
                f"{found.mismatches:,} of {verification.elements:,} elements are outside their bound, "
                f"the first at {where}, the worst {worst:.3g} times it"
            )
        if found.differences:
            reasons.append(f"{found.differences:,} elements differ between two runs on the same operands")
        if found.guard_words:
            reasons.append(f"{found.guard_words:,} words outside C were overwritten")
        return Verdict(verification, "; ".join(reasons))
