"""Outputs under watch, scratch memory and verdicts, in host memory that plays the device's."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from space.kinds.gemm import Gemm
from workers.cuda import outputs
from workers.cuda.families import shared
from workers.cuda.outputs import Difference, Outputs
from workers.cuda.toolbox import Changed, CheckResult
from workers.cuda.verification import Verifier

COPIES = 5


class Held:
    """Host memory with the interface of a device's buffer and of a host's."""

    def __init__(self, size_bytes: int) -> None:
        self._room = ctypes.create_string_buffer(b"\xff" * size_bytes, size_bytes)
        self.address, self.size_bytes = ctypes.addressof(self._room), size_bytes

    @classmethod
    def allocate(cls, size_bytes: int) -> Held:
        return cls(size_bytes)

    def fetch(self, address: int, stream: object) -> None:
        ctypes.memmove(self.address, address, self.size_bytes)

    def free(self) -> None: ...


class Tools:
    """Plays the kernels of the toolbox: `digests` says what each copy's output has."""

    def __init__(self) -> None:
        self.digests = [7] * COPIES

    def run(self, name: str, *arguments: Any, blocks: int | None = None) -> None:  # noqa: ANN401
        if name == "digest_outputs":
            _, copies, _, to = arguments
            (ctypes.c_uint64 * copies.value).from_address(to.value)[:] = self.digests[: copies.value]
        elif name == "compare_digests":
            digests, copies, verified, changed = arguments
            found = Changed.from_address(changed.value)
            held = (ctypes.c_uint64 * copies.value).from_address(digests.value)
            for copy, digest in enumerate(held):
                if digest != verified.value:
                    found.copies, found.first = found.copies + 1, max(found.first, ~copy & 0xFFFFFFFF)
            held[:] = [0] * copies.value


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Tools:
    monkeypatch.setattr(outputs, "Buffer", Held)
    monkeypatch.setattr(outputs, "HostBuffer", Held)
    monkeypatch.setattr(outputs, "check", lambda call, result: result)
    monkeypatch.setattr(outputs, "cu", SimpleNamespace(
        cuMemcpyHtoD=ctypes.memmove, cuMemsetD8Async=lambda at, value, count, stream: ctypes.memset(at, value, count),
    ))  # fmt: skip
    return Tools()


def watched(tools: Tools) -> Outputs:
    operands = SimpleNamespace(
        output=SimpleNamespace(dtype="bf16", size_bytes=64), copies=range(COPIES), output_address=lambda copy: copy
    )
    return Outputs(operands, tools, SimpleNamespace(handle=0, synchronize=lambda: None))  # type: ignore[arg-type]


def test_differences_are_told_by_slot_and_first_copy_and_once(tools: Tools) -> None:
    under = watched(tools)
    under.digest_first()
    assert under.verified == 7
    under.compare(7)
    assert under.differences() == {}
    tools.digests = [7, 7, 8, 7, 9]
    under.compare(7, 3)
    under.compare(7, 3)
    tools.digests = [8] * COPIES
    under.compare(7, outputs.SLOTS - 1)
    assert under.differences() == {3: Difference(4, COPIES, 2), outputs.SLOTS - 1: Difference(5, COPIES, 0)}
    assert under.differences() == {}
    with pytest.raises(ValueError, match="slot 64 is none of 64: time at most 64 candidates together"):
        under.compare(8, outputs.SLOTS)


def test_differences_of_a_candidate_that_failed_are_not_the_next_ones(tools: Tools) -> None:
    under = watched(tools)
    under.digest_first()
    tools.digests = [8] * COPIES
    under.compare(7)
    # A later replay is refused, so nobody asks.
    under.digest_first()
    under.compare(8)
    assert under.differences() == {}


def test_a_launch_is_named_by_its_copy() -> None:
    # Of ten launches on five copies the last five show: 6 to 10.
    for copy, number in ((0, 6), (4, 10)):
        assert f": launch {number} of 10, or" in Difference(1, 5, copy).text(10)


def test_every_kind_of_fault_is_a_reason_and_none_is_forgotten() -> None:
    made: Any = Verifier.__new__(Verifier)
    made._operands = SimpleNamespace(
        problem=Gemm.of(4, 8, 16, batch=2), output=SimpleNamespace(name="c"),
        reference=SimpleNamespace(elements=64, method="float64"),
    )  # fmt: skip
    made._once = made._whole = SimpleNamespace(us=1.0)
    made._outputs = SimpleNamespace(verified=7)
    right = made._judge(CheckResult(worst_ratio=0x3F000000))
    assert (right.reason, right.verification.mismatches, right.verification.worst_ratio) == ("", 0, 0.5)
    for fault, said in (
        ({"mismatches": 2, "first_bad": ~43 & 2**64 - 1}, "row 1, column 3 of product 1"),
        ({"differences": 2}, "2 elements differ between two runs"),
        ({"guard_bytes": 2}, "2 bytes outside C were overwritten"),
    ):
        verdict = made._judge(CheckResult(**fault))
        assert said in verdict.reason
        assert verdict.verification.mismatches == 2
    # All of both runs that are compared, and more: a report that counts more than there are is refused.
    everywhere = made._judge(CheckResult(mismatches=128, first_bad=2**64 - 1, differences=64, guard_bytes=9))
    assert everywhere.verification.mismatches == everywhere.verification.elements
    assert everywhere.reason.startswith("64 of 64 elements are outside their bound, the first at row 0, column 0")


def test_scratch_memory_grows_and_only_what_is_counted_in_is_zeroed(monkeypatch: pytest.MonkeyPatch) -> None:
    zeroed: list[int] = []
    monkeypatch.setattr(shared, "Buffer", Held)
    monkeypatch.setattr(shared, "_zero", lambda buffer: zeroed.append(buffer.address))
    state = shared.Shared()
    first = state.scratch("semaphores", 16, zeroed=True)
    assert state.scratch("semaphores", 8, zeroed=True) == first
    larger = state.scratch("semaphores", 32, zeroed=True)
    assert larger != first
    state.scratch("partials", 1024)
    assert zeroed == [first, larger]
    zeroed.clear()
    # Programs that were recorded before may still count in the smaller one.
    state.reset()
    assert zeroed == [first, larger]
