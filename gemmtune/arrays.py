"""Arrays of any library that speaks DLPack (JAX, CuPy, torch …) as operands of the tuned kernels."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from gemmtune.layouts import READABLE, layout_of
from space.errors import ProblemError
from space.kinds.gemm import Gemm
from space.problem import DTYPE_BYTES
from workers.cuda.copies import Strides

#: dlpack.h: DLDeviceType of memory that a GPU owns or manages.
_CUDA, _MANAGED = 2, 13
#: dlpack.h: DLDataTypeCode and bits, by our names.
_DTYPES: Final = {
    (4, 16): "bf16", (2, 16): "fp16", (2, 32): "f32", (10, 8): "fp8_e4m3", (12, 8): "fp8_e5m2", (0, 8): "int8",
    (1, 8): "uint8", (0, 32): "s32",
}  # fmt: skip
#: DLPack's word for CUDA's default stream, as 0 is none there. JAX takes -1, which asks for no order, as a stream too.
_DEFAULT_STREAM, _NO_ORDER = 1, -1


class ArrayRefused(ValueError):
    """No kernel takes these arrays; nothing was launched. The message says why and what to change."""


class _Tensor(ctypes.Structure):
    """dlpack.h: DLTensor, with which DLManagedTensor begins."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("dimensions", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Array:
    """An array in a GPU's memory.

    Attributes:
        strides: in elements.
        device: ordinal.
        held: keeps the memory while it is used.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: int
    held: object


def device_of(value: Any, name: str) -> int:  # noqa: ANN401  (whatever speaks DLPack)
    """The ordinal of the GPU in whose memory an array is.

    Raises:
        ArrayRefused: it does not speak DLPack, or is not in a GPU's memory.
    """
    if not hasattr(value, "__dlpack__") or not hasattr(value, "__dlpack_device__"):
        raise ArrayRefused(f"{name} is a {type(value).__name__}, which does not speak DLPack: give an array on a GPU")
    kind, ordinal = value.__dlpack_device__()
    if int(kind) not in (_CUDA, _MANAGED):
        raise ArrayRefused(f"{name} is not in a GPU's memory (DLPack device {int(kind)}): copy it there")
    return int(ordinal)


def array_of(value: Any, name: str, stream: int = 0) -> Array:  # noqa: ANN401  (whatever speaks DLPack)
    """An array by DLPack's protocol.

    Args:
        stream: handle of the CUDA stream that will use it: its producer makes that one wait for what writes the array.

    Raises:
        ArrayRefused: it does not speak DLPack, is not in a GPU's memory, or has a dtype that kernels don't know.
    """
    device_of(value, name)
    try:
        capsule = value.__dlpack__(stream=stream or _DEFAULT_STREAM)
    except BufferError:
        try:
            # torch knows no per-thread default stream: the caller has to order that one.
            capsule = value.__dlpack__(stream=_NO_ORDER)
        except BufferError as error:
            raise ArrayRefused(f"{name} can't leave its library by DLPack: {error}") from error
    address = ctypes.pythonapi.PyCapsule_GetPointer
    address.restype, address.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    tensor = _Tensor.from_address(address(capsule, b"dltensor"))
    dtype = _DTYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if dtype is None:
        raise ArrayRefused(f"{name} has DLPack's dtype {tensor.code} of {tensor.bits} bits: kernels don't know it")
    shape = tuple(tensor.shape[: tensor.dimensions])
    strides = tuple(tensor.strides[: tensor.dimensions]) if tensor.strides else _dense(shape)
    return Array(
        (tensor.data or 0) + tensor.byte_offset, shape, strides, dtype, tensor.device_id, (value, capsule)
    )


def problem_of(a: Array, b: Array, out: Array, scales: str = "") -> Gemm:
    """The product C = A·B of [M,K] and [K,N], or of batches of them.

    Args:
        scales: how the operands are scaled on the device, one of `space.kinds.gemm.SCALES`.

    Raises:
        ArrayRefused: the arrays don't go together, or no kernel takes them.
    """
    if not 2 <= len(a.shape) <= 3 or len(b.shape) != len(a.shape) or len(out.shape) != len(a.shape):
        raise ArrayRefused(f"a is {a.shape}, b {b.shape}, out {out.shape}: give three matrices, or three batches")
    *batch, m, k = a.shape
    n = b.shape[-1]
    if b.shape != (*batch, k, n) or out.shape != (*batch, m, n):
        raise ArrayRefused(f"a is {a.shape}, b {b.shape}, out {out.shape}: C[M,N] is A[M,K] by B[K,N]")
    if len({a.device, b.device, out.device}) > 1:
        raise ArrayRefused(f"a is on GPU {a.device}, b on {b.device}, out on {out.device}: move them to one")
    if not _is_dense(out):
        raise ArrayRefused(f"out has strides {out.strides}: C is written row by row, without gaps")
    letters = "".join(_lies(name, array)[0] for name, array in (("a", a), ("b", b)))
    check_own(out, ("a", a), ("b", b))
    first, second = ("tf32" if each.dtype == "f32" else each.dtype for each in (a, b))
    try:
        total = "s32" if a.dtype in ("int8", "uint8") else "f32"
        return Gemm(m, n, k, first, second, out.dtype, total, letters, batch[0] if batch else 1, scales or "none")
    except ProblemError as error:
        raise ArrayRefused(f"a {a.shape} {a.dtype} by b {b.shape} {b.dtype}: {error}") from error


def check_own(out: Array, *read: tuple[str, Array]) -> None:
    """Checks that `out` shares no memory with what a kernel reads.

    Raises:
        ArrayRefused: it does.
    """
    for name, array in read:
        if out.address < _end(array) and array.address < _end(out):
            raise ArrayRefused(f"out shares memory with {name}: kernels write C while they read; give out its own")


def strides_of(a: Array, b: Array) -> dict[str, Strides]:
    """Strides of a problem's operands `a` and `b` if their rows or columns lie apart; empty if both are dense."""
    lies = {name: _lies(name, array)[1] for name, array in (("a", a), ("b", b))}
    return {name: strides for name, strides in lies.items() if strides is not None}


def scales_of(a: Array, b: Array, first: Array, second: Array) -> str:
    """Which of `space.kinds.gemm.SCALES` the scales of A [M,K] and B [K,N] are.

    Raises:
        ArrayRefused: they are neither one number each nor one for each row of A and column of B.
    """
    for name, scale in (("scale of a", first), ("scale of b", second)):
        if scale.dtype != "f32" or not _is_dense(scale) or scale.device != a.device:
            raise ArrayRefused(f"the {name} is {scale.shape} {scale.dtype}: give dense f32 on GPU {a.device}")
    sizes = math.prod(first.shape), math.prod(second.shape)
    if sizes == (1, 1):
        return "scaled"
    if sizes == (a.shape[-2], b.shape[-1]):
        return "scaled_rowwise"
    raise ArrayRefused(
        f"scales are {first.shape} and {second.shape}: give one number each, or {a.shape[-2]} for a's rows and "
        f"{b.shape[-1]} for b's columns"
    )


def _lies(name: str, array: Array) -> tuple[str, Strides | None]:
    found = layout_of(array.shape, array.strides, DTYPE_BYTES[array.dtype])
    if found is None:
        raise ArrayRefused(f"{name} is {array.shape}, strides {array.strides}: {READABLE}; copy it")
    return found


def _end(array: Array) -> int:
    """The address behind its last byte."""
    reach = sum((extent - 1) * stride for extent, stride in zip(array.shape, array.strides, strict=True))
    return array.address + (reach + 1) * DTYPE_BYTES[array.dtype]


def _is_dense(array: Array) -> bool:
    """Whether it lies row by row without gaps; no address depends on the stride of a single line."""
    each = zip(array.shape, array.strides, _dense(array.shape), strict=True)
    return all(extent == 1 or stride == dense for extent, stride, dense in each)


def _dense(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))
