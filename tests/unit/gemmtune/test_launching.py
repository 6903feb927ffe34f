"""`gemmtune.launch` on a driver that only keeps each thread's stack of contexts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import gemmtune
from gemmtune import launching
from gemmtune.arrays import Array, ArrayRefused
from gemmtune.exact import Exact
from space.errors import ConfigError
from tuner.errors import SettingsError
from tuner.settings import Settings
from workers.cuda import device
from workers.cuda import driver as cuda
from workers.errors import CacheError, DriverError

CALLERS = 7_000
SOURCE = Exact("NVIDIA H200", {})


class Driver(threading.local):
    """Two GPUs, whose contexts are their ordinals. Each thread begins with a context of the caller's own."""

    def __init__(self) -> None:
        self.stack = [CALLERS]

    def cuInit(self, flags: int) -> tuple[int]:  # noqa: N802
        return (0,)

    def cuDeviceGetCount(self) -> tuple[int, int]:  # noqa: N802
        return 0, 2

    def cuDeviceGet(self, ordinal: int) -> tuple[int, int]:  # noqa: N802
        return 0, ordinal

    def cuDevicePrimaryCtxRetain(self, ordinal: int) -> tuple[int, int]:  # noqa: N802
        return 0, ordinal

    def cuCtxPushCurrent(self, context: int) -> tuple[int]:  # noqa: N802
        self.stack.append(context)
        return (0,)

    def cuCtxPopCurrent(self) -> tuple[int, int]:  # noqa: N802
        return 0, self.stack.pop()


class Calls:
    """Takes the place of `launching._Call`, and notes under which context each one is made and launched."""

    def __init__(self, driver: Driver) -> None:
        self.driver, self.noted = driver, list[tuple[str, int, int]]()
        self.fails = self.capturing = False
        self.given: list[tuple[int, int]] = []

    def array_of(self, array: Array, *_: object) -> Array:
        self.given.append((array.device, self.driver.stack[-1]))
        return array

    def synchronize(self) -> tuple[int]:
        (*_, context) = self.driver.stack
        self.noted.append(("waited", context, context))
        return (0,)

    def __call__(self, source: Exact, problem: object, ordinal: int, *_: object) -> Calls.Made:
        self.noted.append(("made", ordinal, self.driver.stack[-1]))
        self.driver.stack[-1] = ordinal  # as cuCtxSetCurrent does
        return Calls.Made(self, ordinal)

    class Made:
        alignment_bytes = dict.fromkeys("abc", 16) | {"scale_a": 4, "scale_b": 4}

        def __init__(self, calls: Calls, ordinal: int) -> None:
            self._calls, self._ordinal = calls, ordinal

        def on(self, *addresses: int) -> None:
            self._calls.noted.append(("launched", self._ordinal, self._calls.driver.stack[-1]))
            if self._calls.fails:
                raise RuntimeError("refused")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    driver = Driver()
    made = Calls(driver)
    monkeypatch.setattr(device, "cu", driver)
    monkeypatch.setattr(launching, "array_of", made.array_of)
    monkeypatch.setattr(launching, "device_of", lambda array, name: array.device)
    monkeypatch.setattr(launching, "_source", lambda table, stale: SOURCE)
    monkeypatch.setattr(launching, "_Call", made)
    monkeypatch.setattr(launching, "_ENDED", [])
    monkeypatch.setattr(cuda.cu, "cuCtxSynchronize", made.synchronize)
    monkeypatch.setattr(cuda.Borrowed, "capturing", property(lambda _: made.capturing))
    device._primary.cache_clear()
    yield made
    launching._call.cache_clear()
    device._primary.cache_clear()


def launch(ordinal: int, stream: int = 5, table: str | None = "table.json") -> None:
    def array(address: int, *shape: int) -> Any:  # noqa: ANN401
        return Array(address, shape, (shape[1], 1), "bf16", ordinal, None)

    gemmtune.launch(array(0x1000, 8, 16), array(0x2000, 16, 32), array(0x3000, 8, 32), stream, table=table)


def test_every_call_runs_under_the_context_of_its_operands_gpu(calls: Calls) -> None:
    for ordinal in (0, 1, 0, 1):
        launch(ordinal)
        assert calls.driver.stack == [CALLERS]
    assert calls.noted == [("made", 0, 0), ("launched", 0, 0), ("made", 1, 1), ("launched", 1, 1),
                           ("launched", 0, 0), ("launched", 1, 1)]  # fmt: skip


def test_arrays_are_given_while_their_gpu_is_current(calls: Calls) -> None:
    launch(1)
    assert calls.given == [(1, 1)] * 3


def test_threads_share_a_kernel_and_keep_their_contexts(calls: Calls) -> None:
    def run(ordinal: int) -> list[int]:
        launch(ordinal)
        # A copy: the thread may be in its next call by the time it is compared.
        return [*calls.driver.stack]

    with ThreadPoolExecutor(4) as threads:
        assert all(stack == [CALLERS] for stack in threads.map(run, [0, 1] * 20))
    assert sum(what == "made" for what, *_ in calls.noted) == 2
    assert all(ordinal == context for _, ordinal, context in calls.noted)


def test_what_is_loaded_waits_for_no_product_that_another_thread_loads(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch(0)
    loading, go_on = threading.Event(), threading.Event()

    def slow(*given: Any) -> Calls.Made:  # noqa: ANN401
        loading.set()
        assert go_on.wait(10)
        return calls(*given)

    monkeypatch.setattr(launching, "_Call", slow)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(launch, 1)
        assert loading.wait(10)
        try:
            threads.submit(launch, 0).result(5)
            assert not first.done()
        finally:
            go_on.set()
    assert [what for what, *_ in calls.noted] == ["made", "launched", "launched", "made", "launched"]


def in_threads(count: int, call: Callable[[], None], together: bool) -> None:
    """Calls from threads of its own, which live at the same time or one after another."""
    meeting = threading.Barrier(count if together else 1)

    def run() -> None:
        call()
        meeting.wait()

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
        if not together:
            thread.join()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize(("stream", "kernels"), [(0, 1), (1, 1), (2, 2)])
def test_two_per_thread_default_streams_share_no_scratch_memory(calls: Calls, stream: int, kernels: int) -> None:
    in_threads(2, partial(launch, 0, stream), together=True)
    assert sum(what == "made" for what, *_ in calls.noted) == kernels


def test_threads_that_end_leave_their_kernels_to_the_next_ones(calls: Calls) -> None:
    in_threads(3, lambda: (launch(0, 2), launch(1, 2), launch(0, 2)), together=False)
    made = [("made", 0, 0), ("launched", 0, 0), ("made", 1, 1), ("launched", 1, 1), ("launched", 0, 0)]
    # What a thread enqueued may run beyond its end, and the next one is on another stream.
    next_one = [("waited", 0, 0), ("launched", 0, 0), ("waited", 1, 1), ("launched", 1, 1), ("launched", 0, 0)]
    assert calls.noted == made + 2 * next_one


def test_a_threads_kernels_are_not_taken_over_in_a_capture(calls: Calls) -> None:
    refused = list[str]()

    def capture() -> None:
        calls.capturing = True
        with pytest.raises(ArrayRefused) as found:
            launch(0, 2)
        refused.append(str(found.value))
        calls.capturing = False
        launch(0, 2)
        calls.capturing = True
        launch(0, 2)
        calls.capturing = False

    in_threads(1, partial(launch, 0, 2), together=False)
    in_threads(1, capture, together=False)
    assert refused[0].endswith("the stream is being captured: call it once before the capture")
    assert [what for what, *_ in calls.noted] == ["made", "launched", "waited", "launched", "launched"]


@pytest.mark.parametrize(("table", "asked"), [("mine.json", "mine.json"), (None, "set.json")])
def test_a_table_that_is_named_goes_before_that_of_the_settings(
    calls: Calls, monkeypatch: pytest.MonkeyPatch, table: str | None, asked: str
) -> None:
    opened: list[tuple[str, bool]] = []
    monkeypatch.setattr(launching, "settings", lambda: Settings(table=Path("set.json")))
    monkeypatch.setattr(launching, "_source", lambda table, stale: opened.append((table, stale)) or SOURCE)
    launch(0, table=table)
    # A stale one is not taken unasked.
    assert opened == [(asked, False)]


@pytest.mark.parametrize(("place", "name"), [(0, "a"), (1, "b"), (2, "out")])
def test_an_array_that_the_kernel_can_not_read_at_its_width_is_refused(calls: Calls, place: int, name: str) -> None:
    shapes = ((0x1000, 8, 16), (0x2000, 16, 32), (0x3000, 8, 32))
    given = [Array(at + 8 * (each == place), tuple(shape), (shape[1], 1), "bf16", 0, None)
             for each, (at, *shape) in enumerate(shapes)]  # fmt: skip
    with pytest.raises(ArrayRefused, match=rf"^{name} starts at 0x\d008, which is not a multiple of the 16 bytes"):
        gemmtune.launch(*given, 5, table=Path("table.json"))
    assert [what for what, *_ in calls.noted] == ["made"]


def test_a_call_that_fails_gives_the_callers_context_back(calls: Calls) -> None:
    calls.fails = True
    with pytest.raises(RuntimeError, match="refused"):
        launch(1)
    assert calls.driver.stack == [CALLERS]


def test_a_gpu_that_is_not_here_is_refused(calls: Calls) -> None:
    with pytest.raises(ArrayRefused, match=r"on GPU 2: cuda:2 is not here: .*; use your library's own product"):
        launch(2)
    assert calls.driver.stack == [CALLERS]


def test_a_gpu_without_room_for_a_context_is_refused(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Driver, "cuDevicePrimaryCtxRetain", lambda *_: (2, 0))
    with pytest.raises(ArrayRefused, match=r"^a is on GPU 1: cuDevicePrimaryCtxRetain: .*; use your library's own"):
        launch(1)


@pytest.mark.parametrize("error", [CacheError("no room"), DriverError("too old"), ConfigError("no such knob")])
def test_a_kernel_that_can_not_be_had_is_refused(
    calls: Calls, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(launching, "_Call", fail)
    with pytest.raises(ArrayRefused, match=str(error)):
        launch(0)


@pytest.mark.parametrize(("at", "name"), [((0x3000, 0x5000), "a"), ((0x5000, 0x30FF), "b")])
def test_an_output_that_shares_memory_with_a_scale_is_refused(calls: Calls, at: tuple[int, int], name: str) -> None:
    a, b = (Array(address, (16, 16), (16, 1), "fp8_e4m3", 0, None) for address in (0x1000, 0x2000))
    out = Array(0x3000, (16, 16), (16, 1), "bf16", 0, None)
    scales = tuple(Array(address, (1,), (1,), "f32", 0, None) for address in at)
    with pytest.raises(ArrayRefused, match=f"out shares memory with the scale of {name}"):
        gemmtune.launch(a, b, out, 5, scales=scales, table=Path("table.json"))
    assert calls.noted == []


@pytest.mark.parametrize(("at", "name"), [((0x5002, 0x5100), "a"), ((0x5000, 0x5101), "b")])
def test_a_scale_that_starts_within_a_number_is_refused(calls: Calls, at: tuple[int, int], name: str) -> None:
    a, b = (Array(address, (16, 16), (16, 1), "fp8_e4m3", 0, None) for address in (0x1000, 0x2000))
    out = Array(0x3000, (16, 16), (16, 1), "bf16", 0, None)
    scales = tuple(Array(address, (1,), (1,), "f32", 0, None) for address in at)
    with pytest.raises(ArrayRefused, match=f"^the scale of {name} starts at 0x.*not a multiple of the 4 bytes"):
        gemmtune.launch(a, b, out, 5, scales=scales, table=Path("table.json"))
    assert [what for what, *_ in calls.noted] == ["made"]


@pytest.mark.parametrize("count", [1, 3])
def test_scales_are_two(calls: Calls, count: int) -> None:
    a, b = (Array(address, (16, 16), (16, 1), "fp8_e4m3", 0, None) for address in (0x1000, 0x2000))
    out = Array(0x3000, (16, 16), (16, 1), "bf16", 0, None)
    scales: Any = tuple(Array(0x5000 + 256 * place, (1,), (1,), "f32", 0, None) for place in range(count))
    with pytest.raises(ArrayRefused, match=f"scales are {count}: give two"):
        gemmtune.launch(a, b, out, 5, scales=scales, table=Path("table.json"))
    assert calls.noted == []


def test_scales_that_are_one_array_are_refused(calls: Calls) -> None:
    a, b = (Array(address, (16, 16), (16, 1), "fp8_e4m3", 0, None) for address in (0x1000, 0x2000))
    out, scale = Array(0x3000, (16, 16), (16, 1), "bf16", 0, None), Array(0x5000, (), (), "f32", 0, None)
    wrong: Any = scale
    with pytest.raises(ArrayRefused, match="scales are a Array: give a pair"):
        gemmtune.launch(a, b, out, 5, scales=wrong, table=Path("table.json"))
    assert calls.noted == []


@pytest.mark.parametrize("stream", [None, object(), "5", 5.0])
def test_a_stream_that_is_no_handle_is_refused(calls: Calls, stream: Any) -> None:  # noqa: ANN401
    with pytest.raises(ArrayRefused, match=rf"stream is a {type(stream).__name__}: give its handle, as CuPy's \.ptr"):
        launch(0, stream)
    assert calls.noted == []


def test_without_a_folder_for_builds_a_launch_is_refused(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise SettingsError("this user has no home folder: set HOME")

    monkeypatch.setattr(launching, "_Call", none)
    with pytest.raises(ArrayRefused, match=r"no home folder: set HOME; use your library's own product"):
        launch(0)
