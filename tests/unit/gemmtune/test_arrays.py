"""Arrays by DLPack, without a GPU: NumPy's arrays say that they are on one."""

from __future__ import annotations

import ctypes
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gemmtune
from gemmtune.apart import difference
from gemmtune.arrays import Array, ArrayRefused, _Tensor, array_of, device_of, problem_of, scales_of, strides_of
from space.kinds.gemm import Gemm
from tests.elements import encoded, numbers
from workers.cuda import device
from workers.cuda.copies import Strides


class OnGpu:
    """A NumPy array that claims to be on a GPU, and notes for which streams it was asked."""

    def __init__(self, array: Any) -> None:  # noqa: ANN401
        self.array = array
        self.streams: list[int] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, *, stream: int) -> object:
        self.streams.append(stream)
        return self.array.__dlpack__()


def zeros(*shape: int, dtype: str = "float16") -> Any:  # noqa: ANN401
    return np.zeros(shape, dtype)


def problem(a: Any, b: Any, out: Any) -> Gemm:  # noqa: ANN401
    arrays = (array_of(OnGpu(array), name) for name, array in (("a", a), ("b", b), ("out", out)))
    return problem_of(*arrays)


def test_addresses_shapes_and_strides_are_the_producers() -> None:
    made = zeros(8, 16)
    found = array_of(OnGpu(made[2:]), "a")
    assert (found.address, found.shape, found.strides, found.dtype) == (made[2:].ctypes.data, (6, 16), (16, 1), "fp16")


def test_strides_give_the_layout() -> None:
    out = zeros(8, 32)
    assert problem(zeros(8, 16), zeros(32, 16).T, out) == Gemm.of(8, 32, 16, "fp16")
    assert problem(zeros(16, 8).T, zeros(16, 32), out).layout == "tn"
    batched = problem(zeros(3, 8, 16), zeros(3, 16, 32), zeros(3, 8, 32))
    assert (batched.batch, batched.layout) == (3, "nn")
    whole = problem(zeros(8, 16, dtype="int8"), zeros(16, 32, dtype="int8"), zeros(8, 32, dtype="int32"))
    assert problem(zeros(8, 16, dtype="uint8"), zeros(16, 32, dtype="int8"), zeros(8, 32, dtype="int32")).m == 8
    assert (whole.dtype, problem(*(zeros(8, 8, dtype="float32") for _ in range(3))).dtype) == ("int8", "tf32")


@pytest.mark.parametrize(
    ("a", "b", "out", "said"),
    [
        (zeros(8, 16), zeros(15, 32), zeros(8, 32), "C\\[M,N\\] is"),
        (zeros(8, 16), zeros(16, 32), zeros(8, 64)[:, ::2], "row by row"),
        (zeros(8, 32)[:, ::2], zeros(16, 32), zeros(8, 32), "rows or columns are contiguous"),
        (zeros(8, 20)[:, :16], zeros(16, 32), zeros(8, 32), "multiples of 16 bytes apart"),
        (zeros(9, 8, 16)[::-1][:3], zeros(3, 16, 32), zeros(3, 8, 32), "a is"),
        (zeros(16), zeros(16, 32), zeros(8, 32), "three matrices"),
        (zeros(8, 16), zeros(3, 16, 32), zeros(8, 32), "three matrices"),
        (zeros(8, 16), zeros(16, 32), zeros(1, 8, 32), "three matrices"),
        (zeros(2, 3, 8, 16), zeros(2, 3, 16, 32), zeros(2, 3, 8, 32), "three matrices"),
        (zeros(8, 16), zeros(16, 32), zeros(8, 31), "C\\[M,N\\] is"),
        (zeros(3, 8, 16), zeros(2, 16, 32), zeros(3, 8, 32), "C\\[M,N\\] is"),
        (zeros(8, 16, dtype="float64"), zeros(16, 32), zeros(8, 32), "kernels don't know"),
        (zeros(8, 16), zeros(16, 32, dtype="int8"), zeros(8, 32), "dtype_b beside fp16"),
    ],
)
def test_what_no_kernel_takes_is_refused(a: Any, b: Any, out: Any, said: str) -> None:  # noqa: ANN401
    with pytest.raises(ArrayRefused, match=said):
        problem(a, b, out)


def test_operands_of_two_gpus_are_refused() -> None:
    a, b, out = (array_of(OnGpu(each), "a") for each in (zeros(8, 16), zeros(16, 32), zeros(8, 32)))
    for arrays in ((replace(a, device=1), b, out), (a, replace(b, device=1), out), (a, b, replace(out, device=1))):
        with pytest.raises(ArrayRefused, match="move them to one"):
            problem_of(*arrays)
    first, second = (array_of(OnGpu(zeros(1, dtype="float32")), "a") for _ in range(2))
    for scales in ((replace(first, device=1), second), (first, replace(second, device=1))):
        with pytest.raises(ArrayRefused, match="give dense f32 on GPU 0"):
            scales_of(a, b, *scales)


def test_scales_are_part_of_the_problem() -> None:
    eight = (Array(0x1000 * place, (16, 16), (16, 1), "fp8_e4m3", 0, None) for place in (1, 2))
    out = Array(0x3000, (16, 16), (16, 1), "bf16", 0, None)
    assert problem_of(*eight, out, "scaled_rowwise").epilogue == "scaled_rowwise"


class Described(OnGpu):
    """An array of 4 by 8 elements as a DLTensor says."""

    def __init__(self, **fields: Any) -> None:  # noqa: ANN401
        super().__init__(None)
        shape = (ctypes.c_int64 * 2)(4, 8)
        self.told = _Tensor(0x1000, 2, 0, 2, 2, 16, 1, shape, None, 0)
        for name, value in fields.items():
            setattr(self.told, name, value)

    def __dlpack__(self, *, stream: int) -> object:
        capsule = ctypes.pythonapi.PyCapsule_New
        capsule.restype, capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return capsule(ctypes.addressof(self.told), b"dltensor", None)


@pytest.mark.parametrize(
    ("code", "bits", "dtype"),
    [(4, 16, "bf16"), (2, 32, "f32"), (10, 8, "fp8_e4m3"), (12, 8, "fp8_e5m2"), (1, 8, "uint8"), (0, 32, "s32")],
)
def test_dtypes_are_those_of_dlpack(code: int, bits: int, dtype: str) -> None:
    assert array_of(Described(code=code, bits=bits), "a").dtype == dtype


def test_managed_memory_is_the_gpus_too() -> None:
    class Managed(Described):
        def __dlpack_device__(self) -> tuple[int, int]:
            return 13, 1

    assert device_of(Managed(), "a") == 1


def test_an_array_begins_at_its_offset_and_is_dense_without_strides() -> None:
    found = array_of(Described(byte_offset=32), "a")
    assert (found.address, found.shape, found.strides, found.dtype) == (0x1020, (4, 8), (8, 1), "fp16")


def test_elements_of_several_lanes_are_refused() -> None:
    with pytest.raises(ArrayRefused, match="kernels don't know it"):
        array_of(Described(lanes=2), "a")


def lies(a: Any, b: Any) -> dict[str, Strides]:  # noqa: ANN401
    return strides_of(array_of(OnGpu(a), "a"), array_of(OnGpu(b), "b"))


def test_rows_and_columns_may_lie_multiples_of_16_bytes_apart() -> None:
    out = zeros(8, 32)
    assert lies(zeros(8, 16), zeros(32, 16).T) == {}
    fused = zeros(8, 48)
    assert problem(fused[:, 16:32], zeros(32, 16).T, out) == Gemm.of(8, 32, 16, "fp16")
    assert lies(fused[:, 16:32], zeros(32, 16).T) == {"a": Strides(48, 8 * 48)}
    assert lies(zeros(8, 16), zeros(32, 24).T[:16]) == {"b": Strides(24, 32 * 24)}
    assert lies(zeros(3, 8, 24)[..., :16], zeros(3, 16, 32)) == {"a": Strides(24, 8 * 24)}
    # Where nothing follows a matrix, only its lines have to start at such multiples.
    assert lies(zeros(3, 24)[:, :20], zeros(20, 32)) == {"a": Strides(24, 3 * 24)}
    assert lies(zeros(1, 3, 24)[..., :20], zeros(1, 20, 32)) == {"a": Strides(24, 3 * 24)}
    odd, same = (np.lib.stride_tricks.as_strided(zeros(200), (2, 3, 20), (step, 48, 2)) for step in (152, 0))
    for gaps in (odd, same):
        with pytest.raises(ArrayRefused, match="multiples of 16 bytes apart"):
            lies(gaps, zeros(2, gaps.shape[-1], 32))


def test_an_output_that_shares_memory_with_an_operand_is_refused() -> None:
    x, w = zeros(16, 16), zeros(16, 16)
    for a, b, name in ((x, w, "a"), (w, x.T, "b")):
        with pytest.raises(ArrayRefused, match=f"out shares memory with {name}"):
            problem(a, b, x)
    buffer = zeros(3, 16)
    assert problem(buffer[:1], w, buffer[1:2]).m == 1


def test_scales_are_one_for_each_operand_or_one_for_each_row_and_column() -> None:
    a, b = (array_of(OnGpu(each), "a") for each in (zeros(8, 16), zeros(16, 32)))

    def of(first: Any, second: Any) -> str:  # noqa: ANN401
        return scales_of(a, b, *(array_of(OnGpu(each), "a") for each in (first, second)))

    assert of(zeros(dtype="float32"), zeros(1, 1, dtype="float32")) == "scaled"
    assert of(zeros(8, 1, dtype="float32"), zeros(32, dtype="float32")) == "scaled_rowwise"
    for first, second, said in (
        (zeros(8, dtype="float32"), zeros(1, dtype="float32"), "8 for a's rows and 32 for b's columns"),
        (zeros(8), zeros(32, dtype="float32"), "give dense f32"),
        (zeros(16, dtype="float32")[::2], zeros(32, dtype="float32"), "give dense f32"),
    ):
        with pytest.raises(ArrayRefused, match=said):
            of(first, second)


def test_strides_of_single_lines_are_of_no_account() -> None:
    w = zeros(16, 64)
    assert problem(zeros(1, 16), w, zeros(2, 128)[:1, :64]) == Gemm.of(1, 64, 16, "fp16", "nn")
    assert problem(zeros(8, 16), zeros(16, 1), zeros(8, 1)).n == 1
    for apart in (zeros(3, 2, 64)[:, :1], zeros(8, 2)[:, :1].reshape(1, 8, 1)):
        with pytest.raises(ArrayRefused, match="row by row"):
            problem(zeros(*apart.shape[:2], 16), zeros(apart.shape[0], 16, apart.shape[2]), apart)
    a, b = (array_of(OnGpu(each), "a") for each in (zeros(8, 16), w))
    row, column = zeros(2, 128, dtype="float32")[:1, :64], zeros(8, 1, dtype="float32")
    assert row.strides == (512, 4)
    assert scales_of(a, b, array_of(OnGpu(column), "a"), array_of(OnGpu(row), "b")) == "scaled_rowwise"
    with pytest.raises(ArrayRefused, match="give dense f32"):
        scales_of(a, b, array_of(OnGpu(zeros(8, 2, dtype="float32")[:, :1]), "a"), array_of(OnGpu(row), "b"))


class Host:
    """Host memory in a GPU's place."""

    def __init__(self) -> None:
        self.held: list[Any] = []

    def put(self, content: Any) -> int:  # noqa: ANN401
        self.held.append(content.copy())
        return int(self.held[-1].ctypes.data)

    def get(self, address: int, size_bytes: int) -> bytes:
        return ctypes.string_at(address, size_bytes)

    def free(self) -> None:
        self.held.clear()


@pytest.mark.parametrize("reads_gaps", [False, True])
@pytest.mark.parametrize(
    "asked", [Gemm.of(8, 32, 16, "fp16"), Gemm.of(8, 32, 16, "fp16", "tn", 3),
              Gemm.of(8, 32, 16, "fp8_e4m3,fp8_e4m3,f32,f32", epilogue="scaled_rowwise")], ids=str
)  # fmt: skip
def test_a_kernel_that_reads_between_lines_is_found(asked: Gemm, reads_gaps: bool) -> None:
    # Shorter steps: longer ones would leave the memory.
    strides = {"a": Strides(48, 48 * 20), "b": Strides(40 - reads_gaps, 40 * 40)}
    right = {"a": Strides(48, 48 * 20), "b": Strides(40, 40 * 40)}
    memory = Host()

    def run(lies: dict[str, Strides]) -> Any:  # noqa: ANN401
        def launch(a: int, b: int, c: int, *scales: int) -> None:
            total = np.zeros((asked.batch, asked.m, asked.n))
            total += read(asked, "a", a, lies.get("a")) @ read(asked, "b", b, lies.get("b"))
            if scales:
                total *= numbers(scales[0], asked.m, "f32")[:, None] * numbers(scales[1], asked.n, "f32")
            raw = encoded(total, asked.dtype_c)
            ctypes.memmove(c, raw.ctypes.data, raw.nbytes)

        return launch

    said = difference(asked, right, run({}), run(strides), memory)
    assert ("bytes of C differ" in said) == reads_gaps
    assert memory.held == []
    if asked.batch > 1:
        # Windows over one buffer: each matrix begins with what is the other's too.
        windows = {"b": Strides(40, 80 - 8 * reads_gaps)}
        assert bool(difference(asked, {"b": Strides(40, 80)}, run({}), run(windows), memory)) == reads_gaps


def read(asked: Gemm, name: str, address: int, lies: Strides | None) -> Any:  # noqa: ANN401
    """An operand as [batch, rows, columns]."""
    operand = next(each for each in asked.operands() if each.name == name)
    lines, width = operand.rows, operand.columns
    if operand.column_major:
        lines, width = width, lines
    lies = lies or Strides(width, lines * width)
    count = (operand.batch - 1) * lies.matrix + (lines - 1) * lies.line + width
    with np.errstate(invalid="ignore"):
        flat = np.nan_to_num(numbers(address, count, operand.dtype), nan=1e3)
    size = flat.itemsize
    shape, steps = (operand.batch, lines, width), (lies.matrix * size, lies.line * size, size)
    found = np.lib.stride_tricks.as_strided(flat, shape, steps)
    return found.swapaxes(1, 2) if operand.column_major else found


@pytest.fixture
def any_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver on which every GPU can be made current."""
    monkeypatch.setattr(device, "current", nullcontext)


@pytest.mark.usefixtures("any_gpu")
@pytest.mark.parametrize(("stream", "expected"), [(0, 1), (1, 1), (2, 2), (0x7F00_1234, 0x7F00_1234)])
def test_producers_are_asked_for_the_stream_of_the_launch(stream: int, expected: int) -> None:
    a, b, out = (OnGpu(zeros(*shape, dtype="int8")) for shape in ((8, 16), (16, 32), (8, 32)))
    scales = OnGpu(zeros(8, 1, dtype="float32")), OnGpu(zeros(1, 32, dtype="float32"))
    with pytest.raises(ArrayRefused):
        gemmtune.launch(a, b, out, stream, scales=scales)
    assert [each.streams for each in (a, b, out, *scales)] == [[expected]] * 5


def test_a_producer_that_refuses_a_stream_is_asked_for_no_order() -> None:
    class Torchs(OnGpu):
        def __dlpack__(self, *, stream: int) -> object:
            if stream == 2:
                raise BufferError("per-thread default stream is not supported.")
            return super().__dlpack__(stream=stream)

    made = Torchs(zeros(8, 16))
    assert array_of(made, "a", 2).shape == (8, 16)
    assert made.streams == [-1]


def test_an_array_that_its_library_does_not_export_is_refused() -> None:
    class Graded(OnGpu):
        def __dlpack__(self, *, stream: int) -> object:
            raise BufferError("Can't export tensors that require gradient, use tensor.detach()")

    with pytest.raises(ArrayRefused, match=r"a can't leave its library by DLPack: .*use tensor\.detach"):
        array_of(Graded(zeros(8, 16)), "a")


@pytest.mark.usefixtures("any_gpu")
def test_launch_names_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(ArrayRefused, match="not in a GPU's memory"):
        gemmtune.launch(zeros(8, 16), zeros(16, 32), zeros(8, 32))
    with pytest.raises(ArrayRefused, match="does not speak DLPack"):
        gemmtune.launch([1], zeros(16, 32), zeros(8, 32))
    with pytest.raises(ArrayRefused, match="GEMMTUNE_TABLE"):
        gemmtune.launch(OnGpu(zeros(8, 16)), OnGpu(zeros(16, 32)), OnGpu(zeros(8, 32)))
