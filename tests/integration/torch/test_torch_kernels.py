"""A prepared kernel's part of a call, on host memory: addresses, alignment, and each stream's scratch memory.

`make test-torch` runs it with the CPU build of PyTorch; a GPU runs `tests/gpu/test_torch.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

from gemmtune.torch import Refused, kernels, streams  # noqa: E402
from gemmtune.torch.sources import Found  # noqa: E402
from space.family import family_named  # noqa: E402
from space.kinds.gemm import Gemm  # noqa: E402
from tests.fake_cublaslt import Recorder, library_of, numbers_of  # noqa: E402
from workers.cuda.copies import Copy  # noqa: E402
from workers.cuda.families import cublaslt  # noqa: E402

CONFIG = family_named("sm90_wgmma").config({})


@dataclass
class On:
    """Notes what would be launched on a stream, and where its scratch memory was."""

    noted: list[tuple[Copy, dict[str, int]]]
    scratch: dict[str, int] = field(default_factory=dict)

    def bring(self, scratch: dict[str, int]) -> None:
        self.scratch = scratch

    def __call__(self, *at: float) -> None:
        self.noted.append((Copy(*at), self.scratch))  # type: ignore[arg-type]


@dataclass
class Calls:
    """What a kernel launches; each stream has arguments of its own."""

    noted: list[tuple[Copy, dict[str, int]]] = field(default_factory=list)

    def on(self, stream: object) -> On:
        return On(self.noted)


@dataclass
class State:
    """torch's state at a call, and its allocations with their threads and streams.

    Attributes:
        unhindered: whether each allocation is one that a capture on another thread survives.
    """

    stream: int = 1
    device: int = 0
    capturing: bool = False
    made: list[torch.Tensor] = field(default_factory=list)
    asked: list[tuple[int, int]] = field(default_factory=list)
    unhindered: list[bool] = field(default_factory=list)


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> State:
    now = State()

    def allocated(size: int, device: int) -> torch.Tensor:
        # Never freed here, so addresses are unique.
        now.made.append(torch.full((size,), 7, dtype=torch.uint8))
        now.asked.append((threading.get_ident(), current.stream))
        now.unhindered.append(getattr(current, "relaxed", False))
        return now.made[-1]

    current = threading.local()
    current.stream = 0

    @contextmanager
    def stream(handle: int) -> Iterator[None]:
        current.stream = handle
        yield
        current.stream = 0

    @contextmanager
    def unhindered() -> Iterator[None]:
        current.relaxed = True
        yield
        current.relaxed = False

    @contextmanager
    def device(index: int) -> Iterator[None]:
        before, now.device = now.device, index
        yield
        now.device = before

    monkeypatch.setattr(kernels, "current_stream", lambda device: now.stream)
    monkeypatch.setattr(kernels, "current_device", lambda: now.device)
    monkeypatch.setattr(torch.cuda, "device", device)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: now.capturing)
    monkeypatch.setattr(streams, "allocated", allocated)
    monkeypatch.setattr(streams, "unhindered", unhindered)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: now.stream)
    monkeypatch.setattr(torch.cuda, "stream", stream)
    monkeypatch.setattr(streams, "_QUEUES", {})
    monkeypatch.setattr(kernels, "empty_strided", torch._C._dynamo.guards._empty_strided_cpu)
    return now


def kernel(
    calls: Calls, zeroed: dict[str, int], passing: dict[str, int], device: int = 0, shape: tuple[int, ...] = (64, 64)
) -> kernels.Kernel:
    aligned = (("a", 16), ("b", 16), ("c", 16), ("source", 2), ("bias", 2))
    return kernels.Kernel(CONFIG, device, calls, shape, torch.bfloat16, aligned, zeroed, passing)


def operands() -> list[torch.Tensor]:
    return [torch.zeros(64, 64, dtype=torch.bfloat16) for _ in range(3)]


def test_addresses_are_those_of_this_calls_operands(state: State) -> None:
    calls = Calls()
    ready = kernel(calls, {}, {})
    for _ in range(2):
        a, b, out = operands()
        bias, source = torch.zeros(64, dtype=torch.bfloat16), operands()[0]
        assert ready.launch(a, b, bias, source, 0.5, 2.0, out) is out
        at, scratch = calls.noted[-1]
        assert (at.a, at.b, at.c) == (a.data_ptr(), b.data_ptr(), out.data_ptr())
        assert (at.bias, at.source) == (bias.data_ptr(), source.data_ptr())
        assert (at.alpha, at.beta, scratch) == (0.5, 2.0, {})
        ready.launch(a, b, None, None, 1.0, 0.0, out)
        assert (calls.noted[-1][0].bias, calls.noted[-1][0].source) == (0, 0)


def test_c_is_made_dense_in_its_shape_and_dtype(state: State) -> None:
    calls = Calls()
    a, b, _ = operands()
    for shape in ((64, 64), (2, 3, 5), (7, 1)):
        made = kernel(calls, {}, {}, shape=shape).launch(a, b, None, None, 1.0, 0.0)
        assert (tuple(made.shape), made.dtype, made.is_contiguous()) == (shape, torch.bfloat16, True)
        assert calls.noted[-1][0].c == made.data_ptr()


def test_a_call_for_another_device_makes_it_the_current_one(state: State) -> None:
    calls = Calls()
    seen: list[int] = []
    ready = kernel(calls, {}, {}, device=1)
    calls.on = lambda stream: seen.append(state.device) or On(calls.noted)  # type: ignore[func-returns-value, method-assign]
    ready.launch(*operands()[:2], None, None, 1.0, 0.0)
    assert (seen, state.device, len(calls.noted)) == ([1], 0, 1)


def test_a_thread_without_a_context_gets_one_before_its_first_launch(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, made = Calls(), list[tuple[int, int]]()
    ready = kernel(calls, {}, {})
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: made.append((device, len(calls.noted))))

    def launch_twice() -> None:
        for _ in range(2):
            ready.launch(*operands()[:2], None, None, 1.0, 0.0)

    for _ in range(2):
        thread = threading.Thread(target=launch_twice)
        thread.start()
        thread.join()
    assert made == [(0, 0), (0, 2)]


def test_a_misaligned_operand_is_refused_and_nothing_is_launched(state: State) -> None:
    calls = Calls()
    store = torch.zeros(64 * 64 + 8, dtype=torch.bfloat16)
    for place, name in enumerate(("a", "b", "c")):
        given = operands()
        given[place] = store[1 : 1 + 64 * 64].view(64, 64)
        a, b, out = given
        with pytest.raises(Refused, match=f"{name} starts at .* 16 bytes that sm90_wgmma"):
            kernel(calls, {}, {}).launch(a, b, None, None, 1.0, 0.0, out)
    assert calls.noted == []


def launched(state: State, ready: kernels.Kernel, stream: int, capturing: bool = False) -> dict[str, int]:
    """Addresses of scratch memory; counters in it are zero."""
    state.stream, state.capturing = stream, capturing
    ready.launch(*operands()[:2], None, None, 1.0, 0.0)
    scratch: dict[str, int] = ready.call.noted[-1][1]
    if "semaphores" in scratch:
        held = next(one for one in state.made if one.data_ptr() == scratch["semaphores"])
        assert not held.any()
    return scratch


def test_scratch_memory_is_a_streams_own_and_a_graphs_own_and_counters_begin_at_zero(state: State) -> None:
    ready = kernel(Calls(), {"semaphores": 64}, {"partials": 256})
    first, again, other = (launched(state, ready, stream) for stream in (1, 1, 2))
    graph, replayed = launched(state, ready, 2, capturing=True), launched(state, ready, 2)
    another = launched(state, ready, 2, capturing=True)
    assert first == again
    assert other == replayed
    for name in ("semaphores", "partials"):
        assert len({one[name] for one in (first, other, graph, another)}) == 4


def test_captured_calls_take_zeros_of_their_own_until_there_are_no_more(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_made_zeros", lambda device: torch.zeros(streams.RESERVE_BYTES, dtype=torch.uint8))
    monkeypatch.setattr(streams, "RESERVE_BYTES", 2048)
    monkeypatch.setattr(streams, "MOST_RESERVES", 2)
    reserve = streams._RESERVES[0] = streams.Reserve(0)
    ready = kernel(Calls(), {"semaphores": 600}, {"partials": 256})

    def captured() -> int:
        state.stream, state.capturing = 1, True
        ready.launch(*operands()[:2], None, None, 1.0, 0.0)
        return int(ready.call.noted[-1][1]["semaphores"])

    try:
        first_own = captured()
        reserve.refill()
        found = [captured(), captured()]
        begin = reserve._kept[0].data_ptr()
        assert found == [begin, begin + 1024]
        assert captured() not in (first_own, *found)
        for _ in range(3):
            reserve.refill()
        assert len(reserve._kept) == 2
        assert captured() == reserve._kept[1].data_ptr()
    finally:
        del streams._RESERVES[0]


def test_kernels_of_a_stream_share_scratch_memory_and_follow_where_it_grows(state: State) -> None:
    small = kernel(Calls(), {"semaphores": 64}, {"partials": 256})
    large = kernel(Calls(), {"semaphores": 4096}, {"packed_a": 100, "packed_b": 5000})
    before = launched(state, small, 1)
    grown = launched(state, large, 1)
    after = launched(state, small, 1)
    assert (after["partials"], after["semaphores"]) == (grown["packed_a"], grown["semaphores"])
    assert not set(after.values()) & set(before.values())
    assert grown["packed_b"] == grown["packed_a"] + 512
    # Another thread allocates kept memory, because pools belong to threads, for the stream that uses it.
    assert {thread == threading.get_ident() for thread, _ in state.asked} == {False}
    assert {stream for _, stream in state.asked} == {1}
    assert all(state.unhindered)


def test_much_scratch_memory_is_of_one_call_alone(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "KEPT_BYTES", 1024)
    large = kernel(Calls(), {"semaphores": 64}, {"packed_a": 2048})
    first, again = launched(state, large, 1), launched(state, large, 1)
    assert first["packed_a"] != again["packed_a"]
    assert first["semaphores"] == again["semaphores"]


LIBRARY = family_named("cublaslt")
SQUARE = Gemm.of(64, 64, 64)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    lt = Recorder()
    monkeypatch.setattr(cublaslt, "opened", lambda device: (library_of(lt), ""))
    return lt


def test_the_librarys_algorithm_runs_on_the_current_stream_in_the_streams_workspace(
    state: State, library: Recorder
) -> None:
    config = LIBRARY.config({"algorithm": 39, "tile": 15, "split_k": -1, "workspace_bytes": 4096})
    call, build_digest = kernels._of_library(SQUARE, Found(config, "planted", "measured", "130200"), 0)
    assert build_digest == ""
    aligned = tuple((name, call.alignment_bytes[name]) for name in ("a", "b", "c", "source", "bias"))
    passing = {name: one.size_bytes for name, one in call.scratch.items()}
    ready = kernels.Kernel(config, 0, call, (64, 64), torch.bfloat16, aligned, {}, passing)
    workspaces = []
    for stream, capturing in ((1, False), (1, False), (2, False), (2, True)):
        state.stream, state.capturing = stream, capturing
        a, b, out = operands()
        ready.launch(a, b, None, None, 1.0, 1.0, out)
        ran = library.calls[-1]
        # The library takes our B first.
        assert (ran[3], ran[5], ran[10]) == (b.data_ptr(), a.data_ptr(), out.data_ptr())
        assert (numbers_of(ran[12])["ID"], numbers_of(ran[12])["SPLITK_NUM"]) == (39, -1)
        assert (ran[14], ran[15]) == (4096, stream)
        workspaces.append(ran[13])
    assert workspaces[0] == workspaces[1]
    assert len({0, *workspaces}) == 4
    assert library.scalars == [(1.0, 0.0)] * 4
    misaligned = torch.zeros(64 * 64 + 8, dtype=torch.bfloat16)[1:-7].view(64, 64)
    for name, given in (("b", (a, misaligned, None, None)), ("source", (a, b, None, misaligned))):
        with pytest.raises(Refused, match=rf"^{name} starts at .* 16 bytes that cublaslt"):
            ready.launch(*given, 1.0, 1.0, out)
    assert len(library.calls) == 4


def test_scales_are_brought_to_the_algorithm_before_its_launch(state: State, library: Recorder) -> None:
    config, problem = LIBRARY.config({"algorithm": 66}), Gemm.of(64, 64, 64, "fp8_e4m3", epilogue="alpha")
    call, _ = kernels._of_library(problem, Found(config, "planted", "measured", "130200"), 0)
    aligned = tuple((name, call.alignment_bytes[name]) for name in ("a", "b", "c", "source", "bias"))
    ready = kernels.Kernel(config, 0, call, (64, 64), torch.bfloat16, aligned, {}, {})
    a, b, out = operands()
    scales = torch.tensor(0.5), torch.tensor(2.0)
    ready.launch(a, b, None, None, 1.0, 0.0, out, scales)
    assert library.attributes["A_SCALE_POINTER"] == scales[1].data_ptr()
    assert library.attributes["B_SCALE_POINTER"] == scales[0].data_ptr()
    assert len(library.calls) == 1


def test_misaligned_vectors_are_refused_and_nothing_is_launched(state: State, library: Recorder) -> None:
    """The library may read scales of rows, and a bias, by its widest loads."""
    config = LIBRARY.config({"algorithm": 66})
    problem = Gemm.of(64, 64, 64, "fp8_e4m3", epilogue="scaled_rowwise+bias")
    about = SimpleNamespace(name="NVIDIA H200", major=9, minor=0, multi_processor_count=132, L2_cache_size=60 << 20)
    source = SimpleNamespace(find=lambda *_: Found(config, "planted", "measured", "130200"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(torch.cuda, "get_device_properties", lambda _: about)
        patched.setattr(kernels, "power_limits_w", lambda _: (700.0, 700.0))
        ready = kernels._looked_up(problem, 0, (64, 64), torch.bfloat16, source, {})
    assert isinstance(ready, kernels.Kernel)
    (a, b, out), scales = operands(), torch.ones(80)
    for number, name in enumerate(("scale_a", "scale_b")):
        given = [scales[:64], scales[:64]]
        given[number] = scales[1:65]
        with pytest.raises(Refused, match=f"^{name} starts at .* 16 bytes that cublaslt"):
            ready.launch(a, b, None, None, 1.0, 0.0, out, (given[0], given[1]))
    bias = torch.zeros(80, dtype=torch.bfloat16)
    with pytest.raises(Refused, match=r"^bias starts at .* 16 bytes that cublaslt"):
        ready.launch(a, b, bias[1:65], None, 1.0, 0.0, out, (scales[:64], scales[:64]))
    assert library.calls == []
    ready.launch(a, b, bias[16:], None, 1.0, 0.0, out, (scales[:64], scales[16:]))
    assert len(library.calls) == 1


def test_an_algorithm_of_another_version_is_refused_with_both(library: Recorder) -> None:
    config = LIBRARY.config({"algorithm": 39})
    why = kernels._of_library(SQUARE, Found(config, "planted", "measured", "120800"), 0)
    assert why == f"{config.key} was measured with cuBLASLt 120800, and 130200 is loaded here: tune again with it"
    # Unknown versions are checked by the library alone.
    assert not isinstance(kernels._of_library(SQUARE, Found(config, "planted"), 0), str)
    unknown = Found(LIBRARY.config({"algorithm": 5}), "planted")
    assert "can't be rebuilt: cublasLtMatmulAlgoCheck of algorithm 5" in kernels._of_library(SQUARE, unknown, 0)


def test_without_the_library_its_algorithm_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cublaslt, "opened", lambda device: (None, "cuBLASLt can't be used (planted)"))
    assert kernels._of_library(SQUARE, Found(LIBRARY.config({}), ""), 0) == "cuBLASLt can't be used (planted)"
