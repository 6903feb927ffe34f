"""Calls without a driver: redirected arguments equal arguments built for the new addresses."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable
from dataclasses import astuple, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from space.config import Config
from space.explain import explain
from space.family import family_named
from space.instructions.tma import MAP_ALIGN_BYTES
from space.kinds.gemm import Gemm
from tests.fake_cublaslt import Recorder, library_of
from tests.integration.workers.launches import CASES, H200
from workers.cuda import calls, copies, families
from workers.cuda.driver import CudaError
from workers.cuda.families import cublaslt, shared

SECOND = {"partials": 0x3_0000, "semaphores": 0x3_1000, "packed_a": 0x3_2000, "packed_b": 0x3_3000}
FIRST = (0x1_0000, 0x1_1000, 0x1_2000, 0, 0, 1.0, 0.0)
THEN = (0x2_0000, 0x2_1000, 0x2_2000, 0x2_3000, 0x2_4000, 0.5, 1.5)
SCALES = {FIRST: (0x1_3000, 0x1_4000), THEN: (0x2_5000, 0x2_6000)}


class Driver:
    """Descriptors whose first 8 bytes are their address; the rest says what box they are of."""

    @staticmethod
    def encode(box: Any, address: int) -> Any:  # noqa: ANN401
        rest = hashlib.sha256(repr(astuple(box)).encode()).digest()
        return ctypes.create_string_buffer(address.to_bytes(8, "little") + rest, 128)

    @staticmethod
    def replace_address(tensor_map: int, address: int) -> int:
        assert tensor_map % MAP_ALIGN_BYTES == 0
        ctypes.memmove(tensor_map, address.to_bytes(8, "little"), 8)
        return 0


class Launched:
    """A function that notes the bytes that it is launched with."""

    noted: list[bytes] = []  # noqa: RUF012
    grids: list[int] = []  # noqa: RUF012

    def __init__(self, *_: object, **__: object) -> None: ...

    def fill(self, most: int, sm_count: int) -> int:
        return min(most, sm_count)

    def set_grid(self, clusters: int) -> None:
        self.grids.append(clusters)

    def __call__(self, stream: object, arguments: Any) -> None:  # noqa: ANN401
        self.noted.append(b"".join(bytes(value) for value in arguments.values))

    def ready(self, stream: object, arguments: Any) -> Callable[[], None]:  # noqa: ANN401
        return partial(self, stream, arguments)


class Program:
    def __init__(self, cubin: bytes) -> None: ...

    def function(self, name: str) -> str:
        return name

    def unload(self) -> None: ...


class Placed(shared.Shared):  # type: ignore[misc]
    """Scratch memory at known addresses."""

    def scratch(self, name: str, size_bytes: int, *, zeroed: bool = False) -> int:
        self.sizes = {**getattr(self, "sizes", {}), name: size_bytes}
        return SECOND[name]


def loaded(problem: Gemm, config: Config) -> Any:  # noqa: ANN401
    return families.launcher_of(family_named(config.family))(problem, config, b"", H200, Placed())


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    from workers.cuda.families import gemv, mma_sync, packing, prepared, sm90_wgmma

    monkeypatch.setattr(shared.Box, "encode", Driver.encode)
    monkeypatch.setattr(shared, "_replace_address", lambda: Driver.replace_address)
    for module in (gemv, mma_sync, sm90_wgmma, packing):
        monkeypatch.setattr(module, "Launch", Launched)
    monkeypatch.setattr(prepared, "Module", Program)
    Launched.noted.clear()
    return Launched.noted


@pytest.mark.parametrize(("problem", "family", "knobs"), CASES, ids=lambda value: getattr(value, "key", None))
def test_a_call_is_what_a_launcher_made_for_these_operands_would_launch(
    noted: list[bytes], problem: Gemm, family: str, knobs: dict[str, object]
) -> None:
    config = family_named(family).config(knobs)
    assert explain(family_named(family), problem, config).broken == ()
    call = calls.Call(problem, config, b"", H200, 0x9_0000)
    assert set(call.scratch) <= set(SECOND)
    assert [name for name, one in call.scratch.items() if one.zeroed] == ["semaphores"] * ("partials" in call.scratch)
    scratch = {name: SECOND[name] for name in call.scratch}
    here, there = call.on(None), call.on(None)
    for on in (here, there):
        on.bring(scratch)
    for on, at in ((here, FIRST), (here, THEN), (there, FIRST), (here, THEN)):
        if problem.scales:
            on.scale(*SCALES[at])
        on(*at)
    each = len(noted) // 4
    first, then, elsewhere, again = (noted[turn * each : (turn + 1) * each] for turn in range(4))
    noted.clear()
    loaded(problem, config).launch(None, copies.Copy(*THEN, *(SCALES[THEN] if problem.scales else ())))
    assert then == again == noted != first == elsewhere


@pytest.mark.parametrize("moved", range(7))
def test_whatever_moves_alone_is_written(noted: list[bytes], moved: int) -> None:
    problem = Gemm.of(64, 4096, 4096, epilogue="alpha+beta+bias")
    config = family_named("sm90_wgmma").config({"tile_n": 64, "epilogue": "direct"})
    on = calls.Call(problem, config, b"", H200, 0x9_0000).on(None)
    at = [*FIRST[:moved], THEN[moved], *FIRST[moved + 1 :]]
    on(*FIRST)
    on(*at)
    loaded(problem, config).launch(None, copies.Copy(*at))
    first, then, made = noted
    assert then == made != first


@pytest.mark.parametrize("moved", [0, 1, 2, 3, 5, 6])
def test_what_ctrl_c_interrupts_moves_no_later_call(
    noted: list[bytes], monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    problem = Gemm.of(64, 4096, 4096, epilogue="alpha+beta+bias")
    config = family_named("sm90_wgmma").config({"tile_n": 64, "epilogue": "direct"})
    on = calls.Call(problem, config, b"", H200, 0x9_0000).on(None)
    on(*FIRST)
    move = shared.Place.move

    def interrupted(place: shared.Place, address: int) -> None:
        move(place, address)
        raise KeyboardInterrupt

    monkeypatch.setattr(shared.Place, "move", interrupted)
    with pytest.raises(KeyboardInterrupt):
        on(*FIRST[:moved], THEN[moved], *FIRST[moved + 1 :])
    monkeypatch.setattr(shared.Place, "move", move)
    on(*FIRST)
    first, again = noted
    assert again == first


def test_what_ctrl_c_interrupts_moves_no_later_call_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    lt, problem = Recorder(), Gemm.of(16, 16, 16, "fp8_e4m3", epilogue="scaled+bias")
    call = calls.LibraryCall(problem, family_named("cublaslt").config({"rank": 0}), library_of(lt))
    ready = call.on(SimpleNamespace(handle=3))  # type: ignore[arg-type]

    def launch(at: int) -> None:
        ready.scale(at, at)
        ready(1, 2, 3, 0, at, 1.0, 0.0)

    launch(4096)
    pointers = "A_SCALE_POINTER", "B_SCALE_POINTER", "BIAS_POINTER"
    before = [lt.attributes[name] for name in pointers]
    for name in ("set_scales", "set_bias"):
        written = getattr(cublaslt.Matmul, name)

        def interrupted(matmul: cublaslt.Matmul, *at: int, written: Any = written) -> None:  # noqa: ANN401
            written(matmul, *at)
            raise KeyboardInterrupt

        monkeypatch.setattr(cublaslt.Matmul, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            launch(8192)
        monkeypatch.setattr(cublaslt.Matmul, name, written)
        launch(4096)
        assert [lt.attributes[name] for name in pointers] == before


def test_operands_whose_lines_are_apart_change_their_boxes_alone(noted: list[bytes]) -> None:
    boxes: list[Any] = []
    problem, config = Gemm.of(64, 256, 512, batch=2), family_named("sm90_wgmma").config({"tile_n": 64})

    def encode(box: Any, address: int) -> Any:  # noqa: ANN401
        boxes.append(box)
        return Driver.encode(box, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared.Box, "encode", encode)
        calls.Call(problem, config, b"", H200, 0x9_0000)
        dense, boxes[:] = list(boxes), []
        calls.Call(problem, config, b"", H200, 0x9_0000, {"b": copies.Strides(1024, 300 * 1024)})
    assert [box for box in boxes if box not in dense] == [
        replace(dense[1], pitch_bytes=2048, batch_pitch_bytes=2 * 300 * 1024)
    ]
    assert dense[1].columns == 512


def test_what_reads_dense_operands_alone_says_so(noted: list[bytes]) -> None:
    apart = {"a": copies.Strides(8192, 8192 * 4)}
    for problem, family, said in (
        (Gemm.of(4, 4096, 4096), "gemv", "gemv reads dense operands"),
        (Gemm.of(64, 256, 4099), "sm90_wgmma", "sm90_wgmma packs dense operands"),
    ):
        config = family_named(family).config({"rows": 4} if family == "gemv" else {"tile_n": 64})
        with pytest.raises(CudaError, match=said):
            calls.Call(problem, config, b"", H200, 0x9_0000, apart)


@pytest.mark.parametrize("refused", ["launch", "descriptor", "strides"])
def test_a_call_that_is_refused_leaves_no_program_loaded(
    noted: list[bytes], monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    from workers.cuda.families import sm90_wgmma

    unloaded: list[object] = []

    def refuse(*_: object, **__: object) -> None:
        raise CudaError("refused", "CUDA_ERROR_INVALID_VALUE")

    monkeypatch.setattr(Program, "unload", lambda program: unloaded.append(type(program)))
    problem, apart = Gemm.of(64, 256, 4096), {}
    if refused == "launch":
        monkeypatch.setattr(sm90_wgmma, "Launch", refuse)
    elif refused == "descriptor":
        monkeypatch.setattr(shared.Box, "encode", refuse)
    else:
        problem, apart = Gemm.of(64, 256, 4099), {"a": copies.Strides(8192, 8192 * 64)}
    with pytest.raises(CudaError):
        calls.Call(problem, family_named("sm90_wgmma").config({"tile_n": 64}), b"", H200, 0x9_0000, apart)
    assert unloaded == [Program]


def test_calls_share_a_program_where_blocks_take_the_same_shared_memory(
    noted: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    unloaded: list[object] = []
    monkeypatch.setattr(Program, "unload", lambda program: unloaded.append(program))
    programs: calls.Programs = {}
    tiled, staged = family_named("sm90_wgmma").config({}), family_named("gemv").config({"a_path": "smem"})
    for m in (1, 300, 4096):
        calls.Call(Gemm.of(m, 4096, 4096), tiled, b"tiled", H200, 0x9_0000, programs=programs).unload()
    assert len(programs) == 1
    # A block holds its slice of A: a function that was told of a shorter one could not be launched.
    for k in (512, 1024, 512):
        calls.Call(Gemm.of(1, 4096, k), staged, b"staged", H200, 0x9_0000, programs=programs).unload()
    assert (len(programs), unloaded) == (3, [])
    own = calls.Call(Gemm.of(1, 4096, 512), staged, b"staged", H200, 0x9_0000)
    own.unload()
    assert (len(programs), len(unloaded)) == (3, 1)


SUMS = 128 * 128 * 4


@pytest.mark.parametrize(
    ("problem", "family", "knobs", "grid", "partials", "semaphores"),
    [
        (Gemm.of(512, 512, 4096, batch=2), "mma_sync", {}, 32, 0, 0),
        (Gemm.of(512, 512, 4096, batch=2), "mma_sync", {"persistent": 1}, 32, 0, 0),
        (Gemm.parse("4096x4096x4096"), "mma_sync", {"persistent": 1}, 132, 0, 0),
        (Gemm.of(512, 512, 4096, batch=2), "mma_sync", {"split_k": 4}, 128, 128 * SUMS, 32),
        # The last wave and the one before it are shared; 16 tiles of 4 stages take 64 blocks; 132 are a whole wave.
        (Gemm.parse("4096x4096x4096"), "mma_sync", {"stream_k": 1}, 132, (232 + 132) * SUMS, 232),
        (Gemm.of(512, 512, 128), "mma_sync", {"stream_k": 1}, 64, (16 + 64) * SUMS, 16),
        (Gemm.of(1536, 1408, 4096), "mma_sync", {"stream_k": 1}, 132, 0, 0),
        (Gemm.of(1, 4096, 4096, batch=3), "gemv", {}, 768, 0, 0),
        (Gemm.of(1, 4096, 4096, batch=3), "gemv", {"persistent": 1}, 264, 0, 0),
        (Gemm.of(1, 64, 4096), "gemv", {"persistent": 1}, 4, 0, 0),
        (Gemm.of(1, 4096, 4096, batch=3), "gemv", {"split_k": 4}, 3072, 3072 * 16 * 4, 768),
    ],
)  # fmt: skip
def test_a_launch_has_the_blocks_and_the_memory_of_its_cut(
    noted: list[bytes], problem: Gemm, family: str, knobs: dict[str, object], grid: int, partials: int,
    semaphores: int,
) -> None:  # fmt: skip
    owner = family_named(family)
    config = owner.config(knobs)
    assert explain(owner, problem, config).broken == ()
    Launched.grids.clear()
    memory = Placed()
    families.launcher_of(owner)(problem, config, b"", H200, memory)
    wanted = {"partials": partials, "semaphores": semaphores * 16} if partials else {}
    assert (Launched.grids, getattr(memory, "sizes", {})) == ([grid], wanted)
    assert owner.derive(problem, config, H200)["workspace_bytes"] == sum(wanted.values())


@pytest.mark.parametrize(
    ("problem", "knobs", "pieces", "parts"),
    [
        # 1,024 tiles are seven waves of 132 and 100 more, which have owners; any cluster may multiply a piece of one.
        (Gemm.parse("4096x4096x4096"), {"stream_k": 1, "schedule": "pingpong"}, 132 + 100, 100),
        (Gemm.of(256, 512, 4096, batch=3), {"split_k": 4}, 4 * 3 * 8, 2 * 3 * 8),
        (Gemm.of(256, 512, 4096), {"split_k": 4, "cluster_n": 2}, 4 * 8, 2 * 8),
    ],
)
def test_wgmma_has_a_sum_for_each_piece_of_a_tile_and_a_semaphore_for_each_part(
    noted: list[bytes], problem: Gemm, knobs: dict[str, object], pieces: int, parts: int
) -> None:
    owner, memory = family_named("sm90_wgmma"), Placed()
    config = owner.config({"epilogue": "direct", "tile_n": 128, **knobs})
    assert explain(owner, problem, config).broken == ()
    families.launcher_of(owner)(problem, config, b"", H200, memory)
    assert memory.sizes == {"partials": pieces * SUMS, "semaphores": parts * 16}
    assert sum(memory.sizes.values()) <= owner.derive(problem, config, H200)["workspace_bytes"]


def test_operands_are_read_as_they_lie_or_as_they_are_packed(
    noted: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A[K,M] as it lies, whose lines are along M; B[N,K] in a copy whose rows start at whole lines of L2."""
    boxes: dict[int, Any] = {}
    monkeypatch.setattr(shared.Box, "encode", lambda box, at: boxes.setdefault(at, box) and Driver.encode(box, at))
    problem, memory = Gemm.of(64, 96, 100, "bf16", "tt", 3), Placed()
    config = family_named("sm90_wgmma").config({"tile_n": 32, "epilogue": "direct"})
    made = families.launcher_of(family_named("sm90_wgmma"))(problem, config, b"", H200, memory)
    made.prepare(copies.Copy(*FIRST))
    assert memory.sizes == {"packed_b": 3 * 96 * 256}
    read = {at: (b.columns, b.lines, b.batch, b.pitch_bytes, b.batch_pitch_bytes) for at, b in boxes.items()}
    assert read == {FIRST[0]: (64, 100, 3, 128, 12_800), SECOND["packed_b"]: (100, 96, 3, 256, 96 * 256)}


def test_lines_of_one_chunk_have_no_swizzle() -> None:
    owner, problem = family_named("mma_sync"), Gemm.of(64, 64, 64, layout="nn")
    for tile_n, span in ((8, 0), (16, 32), (48, 32), (64, 128)):
        config = owner.config({"copies": "tma", "tile_n": tile_n, "warps_n": 1, "swizzle": 1})
        box = families.mma_sync.box_of(problem, config, "b", "b")
        assert (box.swizzle_bytes, box.box_columns * 2) == (span, span or 16)
    plain = families.mma_sync.box_of(problem, owner.config({"copies": "tma", "tile_n": 64, "swizzle": 0}), "b", "b")
    assert (plain.swizzle_bytes, plain.box_columns * 2) == (0, 128)


def test_alignment_is_asked_for_where_a_load_or_store_needs_it() -> None:
    def needed(problem: Gemm, family: str, knobs: dict[str, object]) -> dict[str, int]:
        with pytest.MonkeyPatch.context() as patch:
            for module in ("gemv", "mma_sync", "sm90_wgmma", "packing"):
                patch.setattr(f"workers.cuda.families.{module}.Launch", Launched)
            patch.setattr("workers.cuda.families.prepared.Module", Program)
            patch.setattr(shared.Box, "encode", Driver.encode)
            config = family_named(family).config(knobs)
            return dict(calls.Call(problem, config, b"", H200, 0x9_0000).alignment_bytes)

    whole = needed(Gemm.parse("4096x4096x4096"), "sm90_wgmma", {})
    assert (whole["a"], whole["b"], whole["c"], whole["bias"]) == (16, 16, 16, 2)
    packed = needed(Gemm.of(64, 64, 4099), "sm90_wgmma", {"epilogue": "direct"})
    assert (packed["a"], packed["b"], packed["c"]) == (2, 2, 16)
    anywhere = needed(Gemm.of(64, 65, 64), "sm90_wgmma", {"epilogue": "direct"})
    assert (anywhere["a"], anywhere["b"], anywhere["c"]) == (16, 16, 2)
    swapped = needed(Gemm.of(64, 64, 64), "sm90_wgmma", {"epilogue": "direct", "swap_ab": 1})
    assert swapped["c"] == 2
    narrow = needed(Gemm.parse("1x64x64"), "gemv", {"load_bytes": 4})
    assert (narrow["a"], narrow["b"], narrow["c"]) == (4, 4, 2)
    padded = needed(Gemm.of(64, 64, 4100, "int8", "nn"), "mma_sync", {})
    assert (padded["a"], padded["b"]) == (4, 1)
    copied = needed(Gemm.of(64, 64, 4100, layout="nn"), "mma_sync", {})
    assert (copied["a"], copied["b"], copied["c"]) == (8, 16, 16)
