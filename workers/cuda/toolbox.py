"""Toolbox: the kernels of `workers/kernels/verify` and the values that they take, mirrored field by field."""

from __future__ import annotations

import ctypes
from typing import Any, Final

from workers.build import Build
from workers.cuda.driver import Arguments, Launch, Module, Stream

#: Enumerators of `Element` in workers/kernels/verify/elements.cuh.
ELEMENTS: Final = {
    "bf16": 0, "fp16": 1, "tf32": 2, "f32": 3, "fp8_e4m3": 4, "fp8_e5m2": 5, "int8": 6, "uint8": 7, "s32": 8,
}  # fmt: skip
#: Enumerators of `Activation` in workers/kernels/verify/reference.cuh.
ACTIVATIONS: Final = {"": 0, "relu": 1, "gelu": 2, "silu": 3}
#: Rows and columns of C that one block of `reference_sums` works on.
REFERENCE_TILE: Final = 64

_THREADS: Final = 256


class Operand(ctypes.Structure):
    """`Operand` of workers/kernels/verify/reference.cuh; strides in elements."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("row_stride", ctypes.c_longlong),
        ("k_stride", ctypes.c_longlong),
        ("batch_stride", ctypes.c_longlong),
        ("rows", ctypes.c_int),
        ("element", ctypes.c_int),
    )


class Finish(ctypes.Structure):
    """`Finish` of workers/kernels/verify/reference.cuh."""

    _fields_ = (
        ("reference", ctypes.c_void_p),
        ("bound", ctypes.c_void_p),
        ("norms_a", ctypes.c_void_p),
        ("norms_b", ctypes.c_void_p),
        ("source", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("scale_a", ctypes.c_void_p),
        ("scale_b", ctypes.c_void_p),
        ("alpha", ctypes.c_double),
        ("beta", ctypes.c_double),
        ("accumulation", ctypes.c_double),
        ("epilogue", ctypes.c_double),
        ("activation", ctypes.c_double),
        ("rounding", ctypes.c_double),
        ("smallest", ctypes.c_double),
        ("most", ctypes.c_double),
        ("least", ctypes.c_double),
        ("count", ctypes.c_uint64),
        ("m", ctypes.c_int),
        ("n", ctypes.c_int),
        ("element_c", ctypes.c_int),
        ("element_bias", ctypes.c_int),
        ("kind", ctypes.c_int),
        ("saturates", ctypes.c_int),
        ("scaled_rowwise", ctypes.c_int),
    )


class GuardZone(ctypes.Structure):
    """`GuardZone` of workers/kernels/verify/entry.cuh."""

    _fields_ = (("begin", ctypes.c_void_p), ("bytes", ctypes.c_uint64), ("pattern", ctypes.c_uint32))


class CheckResult(ctypes.Structure):
    """`CheckResult` of workers/kernels/verify/entry.cuh; `first_bad` is complemented there."""

    _fields_ = (
        ("mismatches", ctypes.c_uint64),
        ("first_bad", ctypes.c_uint64),
        ("differences", ctypes.c_uint64),
        ("guard_bytes", ctypes.c_uint64),
        ("worst_ratio", ctypes.c_uint32),
    )


class Changed(ctypes.Structure):
    """`Changed` of workers/kernels/verify/entry.cuh; `first` is complemented there."""

    _fields_ = (("copies", ctypes.c_uint32), ("first", ctypes.c_uint32))


class Toolbox:
    """The kernels, loaded once a process."""

    def __init__(self, build: Build, stream: Stream, sm_count: int) -> None:
        self._module = Module(build.cubin)
        self._stream = stream
        self._blocks = sm_count * 8
        self._launches: dict[str, Launch] = {}

    def run(self, name: str, *arguments: Any, blocks: int | None = None) -> None:  # noqa: ANN401  (ctypes values)
        """Launches one tool over a grid that fills the device, or over `blocks` blocks."""
        if name not in self._launches:
            self._launches[name] = self.launch_of(name)
        launch = self._launches[name]
        launch.set_grid(blocks or self._blocks)
        launch(self._stream, Arguments(*arguments))

    def launch_of(self, name: str, *, pdl: bool = False) -> Launch:
        """A tool as a launch of the caller's own, on any stream."""
        return Launch(self._module.function(name), _THREADS, pdl=pdl)


def pointer(address: int) -> ctypes.c_void_p:
    """A device address as a kernel argument."""
    return ctypes.c_void_p(address)
