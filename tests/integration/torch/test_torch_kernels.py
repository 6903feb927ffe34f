"""A prepared kernel's own part of a call, on host memory: addresses, alignment, and whose scratch memory is whose.

Skipped where PyTorch is not installed, as in CI; the GPU runs `tests/gpu/test_torch.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is no part of the lock files")
pytest.importorskip("workers.cuda.calls")

from gemmtune.torch import Refused, kernels  # noqa: E402
from space.family import family_named  # noqa: E402

CONFIG = family_named("sm90_wgmma").config({})


@dataclass
class Calls:
    """Notes what would be launched, and leaves counters as a kernel would: at zero."""

    noted: list[tuple[Any, dict[str, int]]] = field(default_factory=list)

    def __call__(self, stream: int, at: Any, scratch: dict[str, int]) -> None:  # noqa: ANN401
        self.noted.append((at, dict(scratch)))


@dataclass
class State:
    """What torch says of the moment of a call."""

    stream: int = 1
    capturing: bool = False
    made: list[torch.Tensor] = field(default_factory=list)


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> State:
    now = State()

    def allocated(size: int, device: int) -> torch.Tensor:
        # Never freed here, so that no address comes twice.
        now.made.append(torch.full((size,), 7, dtype=torch.uint8))
        return now.made[-1]

    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: now.stream, raising=False)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: now.capturing)
    monkeypatch.setattr(kernels, "_bytes", allocated)
    monkeypatch.setattr(kernels, "_stream", lambda handle: handle)
    monkeypatch.setattr(kernels, "_STREAMS", {})
    return now


def kernel(calls: Calls, zeroed: dict[str, int], passing: dict[str, int]) -> kernels.Kernel:
    aligned = (("a", 16), ("b", 16), ("c", 16), ("source", 2), ("bias", 2))
    return kernels.Kernel(CONFIG, 0, calls, torch.bfloat16, aligned, zeroed, passing)


def operands() -> list[torch.Tensor]:
    return [torch.zeros(64, 64, dtype=torch.bfloat16) for _ in range(3)]


def test_addresses_are_those_of_this_calls_operands(state: State) -> None:
    calls = Calls()
    ready = kernel(calls, {}, {})
    for _ in range(2):
        a, b, out = operands()
        bias = torch.zeros(64, dtype=torch.bfloat16)
        ready.launch(a, b, out, bias, None, 0.5, 2.0)
        at, scratch = calls.noted[-1]
        assert (at.a, at.b, at.c) == (a.data_ptr(), b.data_ptr(), out.data_ptr())
        assert (at.bias, at.source, at.alpha, at.beta, scratch) == (bias.data_ptr(), 0, 0.5, 2.0, {})


def test_a_misaligned_operand_is_refused_and_nothing_is_launched(state: State) -> None:
    calls = Calls()
    store = torch.zeros(64 * 64 + 8, dtype=torch.bfloat16)
    for place, name in enumerate(("a", "b", "c")):
        given = operands()
        given[place] = store[1 : 1 + 64 * 64].view(64, 64)
        with pytest.raises(Refused, match=f"{name} starts at .* 16 bytes that sm90_wgmma"):
            kernel(calls, {}, {}).launch(*given, None, None, 1.0, 0.0)
    assert calls.noted == []


def test_counters_are_a_streams_own_and_a_graphs_own_and_begin_at_zero(state: State) -> None:
    calls = Calls()
    ready = kernel(calls, {"meetings": 64}, {"partials": 256})

    def launched(stream: int, capturing: bool = False) -> dict[str, int]:
        state.stream, state.capturing = stream, capturing
        ready.launch(*operands(), None, None, 1.0, 0.0)
        scratch = calls.noted[-1][1]
        held = next(one for one in state.made if one.data_ptr() == scratch["meetings"])
        assert not held.any()
        return scratch

    first, again, other = launched(1), launched(1), launched(2)
    graph, replayed = launched(2, capturing=True), launched(2)
    assert first["meetings"] == again["meetings"]
    assert other["meetings"] == replayed["meetings"]
    assert len({first["meetings"], other["meetings"], graph["meetings"]}) == 3
    # Partial sums are of one call alone.
    assert len({one["partials"] for one in (first, again, other, graph, replayed)}) == 5
