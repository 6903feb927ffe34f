"""The kernels of `gemmtune.launch` on a driver that only counts what is allocated, loaded and launched."""

from __future__ import annotations

import ctypes
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gemmtune import launching
from gemmtune.arrays import ArrayRefused
from gemmtune.exact import Exact
from gemmtune.found import Found
from space.devices import profile_named
from space.family import family_named
from space.kinds.gemm import Gemm
from tests.fake_cublaslt import Recorder, library_of, numbers_of
from workers.build import BuildFailure
from workers.cuda import calls, device
from workers.cuda import driver as cuda
from workers.cuda.copies import Strides
from workers.cuda.families import cublaslt, gemv, prepared, shared
from workers.measurement import DeviceFacts


class Memory:
    """A driver that gives addresses, and keeps those that are in use."""

    def __init__(self, real: Any) -> None:  # noqa: ANN401
        self.used: set[object] = set()
        self.set: list[tuple[bool, int, int]] = []
        self.capturing = False
        self.done: list[object] = []
        self.content: dict[int, bytes] = {}
        self._real, self._next = real, 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)

    def cuMemAlloc(self, size_bytes: int) -> tuple[int, int]:  # noqa: N802
        self._next += 0x1000
        self.used.add(self._next)
        return 0, self._next

    def cuMemFree(self, address: int) -> tuple[int]:  # noqa: N802
        self.used.remove(address)
        return (0,)

    def cuMemsetD8(self, address: int, value: int, size_bytes: int) -> tuple[int]:  # noqa: N802
        self.set.append((address in self.used, value, size_bytes))
        return (0,)

    def cuCtxSynchronize(self) -> tuple[int]:  # noqa: N802
        return (0,)

    def cuStreamSynchronize(self, stream: int) -> tuple[int]:  # noqa: N802
        self.done.append(f"waited for {stream}")
        return (0,)

    def cuLaunchKernelEx(self, config: object, function: object, arguments: int, extra: int) -> tuple[int]:  # noqa: N802
        (at,) = (ctypes.c_uint64 * 1).from_address(arguments)
        given = gemv.GemvArguments.from_address(at)
        self.done.append((given.a, given.b, given.c))
        return (0,)

    def cuMemcpyHtoD(self, to: int, source: int, size_bytes: int) -> tuple[int]:  # noqa: N802
        self.content[to] = ctypes.string_at(source, size_bytes)
        return (0,)

    def cuMemcpyDtoH(self, to: int, source: int, size_bytes: int) -> tuple[int]:  # noqa: N802
        ctypes.memmove(to, self.content[source], size_bytes)
        return (0,)

    def cuStreamIsCapturing(self, stream: object) -> tuple[int, int]:  # noqa: N802
        return 0, int(self.capturing)

    def load(self, cubin: bytes) -> Program:
        made = Program(self)
        self.used.add(made)
        return made


class Program:
    """A loaded program, whose kernels have one name."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def function(self, name: str) -> cuda.PlannedFunction:
        return cuda.PlannedFunction(name, lambda cluster: 132)

    def unload(self) -> None:
        self._memory.used.remove(self)


class One:
    """A source of one config for whatever is asked."""

    def __init__(self, family: str, **knobs: int) -> None:
        self._config = family_named(family).config(knobs)

    def find(self, problem: Gemm, name: str) -> Found:
        return Found(self._config, "measured", "measured", program=b"cubin")


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    made, h200 = Memory(cuda.cu), profile_named("NVIDIA H200")
    facts = DeviceFacts(h200.name, h200.arch.name, "cuda", "", "", h200.sm_count, h200.l2_bytes, 0)
    for name in ("cuMemsetD8", "cuCtxSynchronize", "cuStreamSynchronize", "cuMemcpyHtoD", "cuMemcpyDtoH"):
        monkeypatch.setattr(cuda.cu, name, getattr(made, name))
    monkeypatch.setattr(cuda, "cu", made)
    monkeypatch.setattr(prepared, "Module", made.load)
    monkeypatch.setattr(device, "open_device", lambda ordinal: facts)
    return made


@pytest.mark.parametrize(
    ("family", "problem", "said"),
    [
        ("gemv", Gemm.of(1, 64, 128), "reads dense operands"),
        ("sm90_wgmma", Gemm.of(1, 64, 129), "packs dense operands"),
    ],
)
def test_a_refused_kernel_keeps_no_memory(memory: Memory, family: str, problem: Gemm, said: str) -> None:
    with pytest.raises(ArrayRefused, match=said):
        launching._Call(One(family), problem, 0, 5, (("b", Strides(136, 64 * 136)),))  # type: ignore[arg-type]
    assert memory.used == set()


def test_a_kernel_keeps_its_program_and_memory_of_which_the_semaphores_are_zero(memory: Memory) -> None:
    made = launching._Call(One("gemv", split_k=4), Gemm.of(1, 64, 4096), 0, 5, ())  # type: ignore[arg-type]
    # The program, an address for descriptors, partial sums and semaphores: one for each of four tiles.
    assert (len(memory.used), memory.set) == (4, [(True, 0, 4 * 16)])
    assert made.alignment_bytes["a"] == 16


def test_a_launch_reads_and_writes_the_callers_arrays(memory: Memory) -> None:
    made = launching._Call(One("gemv"), Gemm.of(1, 64, 128), 0, 5, ())  # type: ignore[arg-type]
    assert memory.done == []
    for at in ((0x1000, 0x2000, 0x3000), (0x1000, 0x2000, 0x5000)):
        made.on(*at)
    assert memory.done == [(0x1000, 0x2000, 0x3000), (0x1000, 0x2000, 0x5000)]


@pytest.mark.parametrize(("wrong", "kept"), [("", 2), ("3 bytes differ", 0)])
def test_where_rows_lie_apart_the_kernel_is_tried_before_it_is_kept(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, wrong: str, kept: int
) -> None:
    def difference(problem: Gemm, lies: object, dense: Any, apart: Any, held: object) -> str:  # noqa: ANN401
        assert lies == {"b": Strides(136, 64 * 136)}
        dense(1, 2, 3)
        apart(4, 5, 6)
        return wrong

    monkeypatch.setattr(gemv.LAUNCHER, "strided", True)
    monkeypatch.setattr(launching, "difference", difference)
    given = One("gemv"), Gemm.of(1, 64, 128), 0, 5, (("b", Strides(136, 64 * 136)),)
    with pytest.raises(ArrayRefused, match=f"is wrong on .* apart: {wrong}; copy them") if wrong else nullcontext():
        launching._Call(*given)  # type: ignore[arg-type]
    assert memory.done == [(1, 2, 3), "waited for 5", (4, 5, 6), "waited for 5"]
    # Its program, and an address for descriptors.
    assert len(memory.used) == kept


def test_scales_are_read_where_the_caller_has_them(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls.CallOn, "scale", lambda _, *at: memory.done.append(at))
    monkeypatch.setattr(calls.CallOn, "__call__", lambda _, *at: memory.done.append(at))
    monkeypatch.setattr(shared.Box, "encode", lambda box, address: ctypes.create_string_buffer(128))
    problem = Gemm.of(64, 4096, 4096, "fp8_e4m3", epilogue="scaled_rowwise")
    made = launching._Call(One("sm90_wgmma", tile_n=64, tile_k=128), problem, 0, 5, ())  # type: ignore[arg-type]
    made.on(1, 2, 3, 4, 5)
    assert memory.done == [(4, 5), (1, 2, 3, 0, 0, 1.0, 0.0)]


def test_operands_are_copied_to_the_gpu_and_back_and_their_memory_is_freed(memory: Memory) -> None:
    gpu = launching._Gpu()
    first, second = (gpu.put(np.arange(count, dtype=np.uint8)) for count in (16, 32))
    assert (gpu.get(first, 16), gpu.get(second, 2)) == (bytes(range(16)), b"\0\1")
    assert memory.used == {first, second}
    for _ in range(2):
        gpu.free()
        assert memory.used == set()


def test_nothing_is_loaded_while_the_stream_is_captured(memory: Memory) -> None:
    memory.capturing = True
    with pytest.raises(ArrayRefused, match="the stream is being captured: call it once before the capture"):
        launching._Call(One("gemv"), Gemm.of(1, 64, 128), 0, 5, ())  # type: ignore[arg-type]
    assert memory.used == set()


def test_a_tables_config_that_a_newer_rule_forbids_is_refused(memory: Memory) -> None:
    found = One("sm90_wgmma", tile_n=256, stages=12)
    with pytest.raises(ArrayRefused, match=r"the measured config breaks smem\.capacity \(.*; tune again"):
        launching._Call(found, Gemm.of(4096, 4096, 4096), 0, 5, ())  # type: ignore[arg-type]
    assert memory.used == set()


def test_a_problem_that_the_table_leaves_to_the_library_is_refused(memory: Memory) -> None:
    said = "on NVIDIA H200: the table leaves this problem to the library; use your library's own product"
    with pytest.raises(ArrayRefused, match=said):
        launching._Call(Exact("NVIDIA H200", {}), Gemm.of(1, 64, 128), 0, 5, ())
    assert memory.used == set()


@pytest.mark.parametrize(
    ("built", "why"),
    [
        (SimpleNamespace(digest="another", cubin=b"cubin"),
         "build another is made of today's kernel by this NVRTC, and measured was measured; measure again with"),
        (BuildFailure("planted", ""), "planted; measure again"),
    ],
)  # fmt: skip
def test_without_the_measured_program_nothing_is_loaded(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, built: object, why: str
) -> None:
    monkeypatch.setattr("workers.build.compile_source", lambda *_: built)
    found = SimpleNamespace(find=lambda *_: Found(family_named("gemv").config({}), "", build_digest="measured"))
    with pytest.raises(ArrayRefused, match=f"the measured program can't be built here: {why}"):
        launching._Call(found, Gemm.of(1, 64, 128), 0, 5, ())  # type: ignore[arg-type]
    assert memory.used == set()


#: An algorithm of the fake library that wants a workspace.
SPLIT = {"algorithm": 39, "tile": 15, "split_k": -1, "workspace_bytes": 4096}
SQUARE = Gemm.of(64, 64, 64)


def of_library(version: str = "130200", **knobs: int) -> Any:  # noqa: ANN401
    """A source whose answer is an algorithm of cuBLASLt."""
    found = Found(family_named("cublaslt").config(knobs or SPLIT), "measured", "measured", version)
    return SimpleNamespace(find=lambda *_: found)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    made = Recorder()
    monkeypatch.setattr(cublaslt, "opened", lambda device: {1: (library_of(made), "")}[device])
    return made


@pytest.mark.parametrize("stream", [0, 2, 5])
def test_the_librarys_algorithm_runs_on_the_callers_stream_in_a_workspace_of_its_own(
    memory: Memory, library: Recorder, stream: int
) -> None:
    made = launching._Call(of_library(), SQUARE, 1, stream, ())
    (workspace,) = memory.used
    assert library.calls == []
    for at in ((0x1000, 0x2000, 0x3000), (0x1000, 0x2000, 0x5000)):
        made.on(*at)
    # The library takes our B first.
    assert [(one[3], one[5], one[10], one[13], one[14], one[15]) for one in library.calls] == [
        (0x2000, 0x1000, 0x3000, workspace, 4096, stream), (0x2000, 0x1000, 0x5000, workspace, 4096, stream)
    ]  # fmt: skip
    ran = numbers_of(library.calls[0][12])
    assert (ran["ID"], ran["TILE_ID"], ran["SPLITK_NUM"]) == (39, 15, -1)
    assert library.scalars == [(1.0, 0.0)] * 2
    assert [made.alignment_bytes[name] for name in "abc"] == [8, 16, 2]


@pytest.mark.parametrize(("epilogue", "step"), [("scaled", 4), ("scaled_rowwise", 16)])
def test_the_librarys_algorithm_reads_scales_where_the_caller_has_them(
    memory: Memory, library: Recorder, epilogue: str, step: int
) -> None:
    problem = Gemm.of(64, 64, 64, "fp8_e4m3", epilogue=epilogue)
    made = launching._Call(of_library(algorithm=66), problem, 1, 5, ())
    made.on(0x1000, 0x2000, 0x3000, 0x4000, 0x5000)
    assert (library.attributes["A_SCALE_POINTER"], library.attributes["B_SCALE_POINTER"]) == (0x5000, 0x4000)
    assert [made.alignment_bytes[name] for name in ("scale_a", "scale_b")] == [step, step]
    # It wants no workspace.
    assert (memory.used, library.calls[0][13:15]) == (set(), (0, 0))


@pytest.mark.parametrize(("wrong", "kept"), [("", 1), ("3 bytes differ", 0)])
def test_where_rows_lie_apart_the_librarys_algorithm_is_tried_before_it_is_kept(
    memory: Memory, library: Recorder, monkeypatch: pytest.MonkeyPatch, wrong: str, kept: int
) -> None:
    lines: list[int] = []

    def difference(problem: Gemm, lies: object, dense: Any, apart: Any, held: object) -> str:  # noqa: ANN401
        for run in (dense, apart):
            run(1, 2, 3)
            # Each description has four layouts, its B first.
            first = library.calls[-1][4]
            lines.append(library.layouts[first - 1][3])
        return wrong

    monkeypatch.setattr(launching, "difference", difference)
    given = of_library(), SQUARE, 1, 5, (("b", Strides(136, 64 * 136)),)
    with pytest.raises(ArrayRefused, match=f"is wrong on .* apart: {wrong}; copy them") if wrong else nullcontext():
        launching._Call(*given)
    assert (lines, memory.done) == ([64, 136], ["waited for 5"] * 2)
    assert len(memory.used) == kept


def test_an_algorithm_of_another_version_is_refused_with_both(memory: Memory, library: Recorder) -> None:
    said = r"cublaslt:\S+ was measured with cuBLASLt 120800, and 130200 is loaded here: tune again with it; use your"
    with pytest.raises(ArrayRefused, match=said):
        launching._Call(of_library("120800"), SQUARE, 1, 5, ())
    assert memory.used == set()


def test_without_the_library_its_algorithm_is_refused(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cublaslt, "opened", lambda device: (None, "cuBLASLt can't be used (planted)"))
    said = r"on NVIDIA H200: cuBLASLt can't be used \(planted\); use your library's own product"
    with pytest.raises(ArrayRefused, match=said):
        launching._Call(of_library(), SQUARE, 1, 5, ())


def test_an_algorithm_that_the_library_refuses_is_named_and_keeps_no_memory(memory: Memory, library: Recorder) -> None:
    for knobs, said in (({"algorithm": 5}, "of algorithm 5"), ({"algorithm": 39, "tile": 13}, "no such tile"),
                        ({"algorithm": 7}, "of workspace")):  # fmt: skip
        with pytest.raises(ArrayRefused, match=rf"cublaslt:\S+ can't be rebuilt for these operands: .*{said}"):
            launching._Call(of_library(**knobs), SQUARE, 1, 5, ())
    assert memory.used == set()


def test_the_library_is_not_opened_while_the_stream_is_captured(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cublaslt, "opened", lambda device: pytest.fail("opened"))
    memory.capturing = True
    with pytest.raises(ArrayRefused, match="call it once before the capture"):
        launching._Call(of_library(), SQUARE, 1, 5, ())
