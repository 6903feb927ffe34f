"""Calls: one config of one problem, loaded once and launched on any operands and any stream; ours or cuBLASLt's.

This is the launch path of measurements for an application's own streams and memory. Nothing here waits for the device,
allocates on it or copies to it, so that streams may be captured into graphs.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeAlias
from weakref import finalize

from space.config import Config
from space.devices import DeviceProfile
from space.family import family_named
from space.instructions.tma import MAP_ALIGN_BYTES, MAP_BYTES
from space.kinds.gemm import Gemm
from workers.cuda.copies import Copy, Strides, element_bytes
from workers.cuda.driver import CudaError, Stream
from workers.cuda.families import prepared_launcher_of
from workers.cuda.families.algorithms import Algorithm, least_alignment_bytes
from workers.cuda.families.cublaslt import Handle, Matmul, unsupported
from workers.cuda.families.prepared import PreparedLauncher, derived_of
from workers.cuda.families.shared import Box, Shared, TensorMap

#: Loaded programs of one device, by digest and by the shared memory of a block, which a function is told once.
Programs: TypeAlias = dict[tuple[bytes, int], Any]
#: No scales have these addresses.
_UNKNOWN: Final = (-1, -1)


@dataclass(frozen=True, slots=True)
class Scratch:
    """Device memory that a call needs beside its operands.

    Attributes:
        zeroed: all bytes must be 0 before the first call; every call leaves them 0. Calls that may run at the same
            time must not share it.
    """

    size_bytes: int
    zeroed: bool


class Call:
    """One config, loaded. The device's context must be current in the calling thread.

    Args:
        anywhere: any address of device memory, a multiple of 16, for which descriptors are encoded before the first
            call.
        strides: of the operands `a` and `b` whose lines are apart.
        programs: those that calls share, and that stay loaded; by default the call has one of its own.

    Attributes:
        scratch: scratch memory that every call needs, by name.
        alignment_bytes: what addresses must be multiples of, by operand (`a`, `b`, `c`, `source`, `bias`, and
            `scale_a` and `scale_b` where the problem has scales).

    Raises:
        CudaError: the driver refuses the program or its launch parameters, or the config takes dense operands alone.
    """

    def __init__(
        self, problem: Gemm, config: Config, cubin: bytes, device: DeviceProfile, anywhere: int,
        strides: Mapping[str, Strides] = MappingProxyType({}), programs: Programs | None = None,
    ) -> None:  # fmt: skip
        launcher, smem_bytes = prepared_launcher_of(family_named(config.family)), 0
        if programs is not None:
            smem_bytes = derived_of(problem, config, device)["shared_memory_bytes"]
        self._wanted = wanted = _Wanted(anywhere, strides, programs, smem_bytes)
        if strides and not launcher.strided:
            raise CudaError(f"{config.family} reads dense operands", "CUDA_ERROR_NOT_SUPPORTED")
        try:
            self._launcher = launcher(problem, config, cubin, device, wanted)
            if strides and any(name.startswith("packed_") for name in wanted.found):
                raise CudaError(f"{config.family} packs dense operands", "CUDA_ERROR_NOT_SUPPORTED")
            # Raises early where the driver refuses the descriptors.
            self._launcher.prepare(Copy(anywhere, anywhere, anywhere))
        except CudaError:
            wanted.unload()
            raise
        self.scratch = wanted.found
        self.alignment_bytes = element_bytes(problem) | self._launcher.alignment_bytes
        self._anywhere = anywhere

    def on(self, stream: Stream) -> CallOn:
        """The call bound to one stream, with arguments of its own.

        Raises:
            CudaError: the driver refuses.
        """
        return CallOn(self._launcher, stream, self._anywhere)

    def unload(self) -> None:
        """Frees the program, unless calls share it; no call may be running."""
        self._wanted.unload()


class CallOn:
    """A call on one stream with prepared arguments: only addresses that changed since the last call are written.

    Not safe for two threads at a time: a launch copies the arguments, and no other thread may change them before.
    """

    def __init__(self, launcher: PreparedLauncher, stream: Stream, anywhere: int) -> None:
        # Descriptors are encoded once; later only their addresses change.
        self._passes = launcher.prepare(Copy(anywhere, anywhere, anywhere))
        self._epilogue, self._places = launcher.epilogue(self._passes), launcher.places(self._passes)
        self._a = self._b = self._c = anywhere
        self._rest: tuple[int, int, float, float] | None = (0, 0, 1.0, 0.0)
        self._scales = 0, 0
        self._launches = tuple(launch.ready(stream, arguments) for launch, arguments in self._passes)

    def bring(self, scratch: Mapping[str, int]) -> None:
        """Sets the addresses of scratch memory for further calls: all of `Call.scratch`, by name.

        Raises:
            CudaError: the driver refuses an address.
        """
        for name, address in scratch.items():
            self._places[name].move(address)

    def scale(self, a: int, b: int) -> None:
        """Sets the addresses of the scales of A and B, which further calls read on the device."""
        if (a, b) != self._scales:
            self._scales = _UNKNOWN
            self._places["scale_a"].move(a)
            self._places["scale_b"].move(b)
            self._scales = a, b

    def __call__(self, a: int, b: int, c: int, source: int, bias: int, alpha: float, beta: float) -> None:
        """Enqueues the kernel, and the pass before it where there is one; the arguments are the fields of `Copy`.

        Raises:
            CudaError: the driver refuses the launch.
        """
        # Ctrl-C may interrupt between a write and the note of it, and the next call may have the noted address.
        if a != self._a:
            self._a = -1
            self._places["a"].move(a)
            self._a = a
        if b != self._b:
            self._b = -1
            self._places["b"].move(b)
            self._b = b
        if c != self._c:
            self._c = -1
            self._places["c"].move(c)
            self._c = c
        rest = source, bias, alpha, beta
        if rest != self._rest:
            self._rest = None
            self._epilogue.alpha, self._epilogue.beta = alpha, beta
            self._places["source"].move(source)
            self._places["bias"].move(bias)
            self._rest = rest
        for launch in self._launches:
            launch()


class LibraryCall:
    """An algorithm of cuBLASLt, rebuilt; the interface of `Call`.

    Args:
        library: of the device, whose context must be current in the calling thread.
        strides: of the operands `a` and `b` whose lines are apart.

    Attributes:
        scratch, alignment_bytes: as `Call` has them.

    Raises:
        CudaError: the library has no such algorithm, or refuses it for this product.
    """

    def __init__(
        self, problem: Gemm, config: Config, library: Handle, strides: Mapping[str, Strides] = MappingProxyType({})
    ) -> None:
        if reason := unsupported(problem):
            raise CudaError(reason, "CUDA_ERROR_NOT_SUPPORTED")
        self._library, self._problem, self._strides = library, problem, strides
        matmul = Matmul(library, problem, strides)
        try:
            self._algorithm = matmul.algorithm(config)
        finally:
            matmul.free()
        size_bytes = self._algorithm.workspace_bytes
        self.scratch = {"workspace": Scratch(size_bytes, zeroed=False)} if size_bytes else {}
        self.alignment_bytes = least_alignment_bytes(problem) | dict(self._algorithm.alignment_bytes)

    def on(self, stream: Stream) -> LibraryCallOn:
        """The call bound to one stream, with a description of the product of its own, which holds the bias."""
        return LibraryCallOn(Matmul(self._library, self._problem, self._strides), self._algorithm, stream)

    def unload(self) -> None:
        """Frees nothing: the library keeps its kernels."""


class LibraryCallOn:
    """An algorithm of cuBLASLt on one stream; the interface of `CallOn`."""

    def __init__(self, matmul: Matmul, algorithm: Algorithm, stream: Stream) -> None:
        self._matmul, self._algorithm, self._stream = matmul, algorithm, int(stream.handle)
        # The library reads descriptions before a call returns, in captures too.
        finalize(self, matmul.free).atexit = False
        self._workspace = self._bias = 0
        self._scales = 0, 0
        self._factors: tuple[float, float] | None = (1.0, 0.0)
        self._alpha, self._beta = matmul.scalar(1.0), matmul.scalar(0.0)
        self._at_alpha, self._at_beta = ctypes.addressof(self._alpha), ctypes.addressof(self._beta)

    def bring(self, scratch: Mapping[str, int]) -> None:
        """Sets the address of the workspace for further calls."""
        self._workspace = scratch.get("workspace", 0)

    def scale(self, a: int, b: int) -> None:
        """Sets the addresses of the scales of A and B, which further calls read on the device."""
        if (a, b) != self._scales:
            self._scales = _UNKNOWN
            self._matmul.set_scales(a, b)
            self._scales = a, b

    def __call__(self, a: int, b: int, c: int, source: int, bias: int, alpha: float, beta: float) -> None:
        """Enqueues the product; the arguments are the fields of `Copy`. Without a source beta counts as 0.

        Raises:
            CudaError: the library refuses the call.
        """
        if bias != self._bias:
            self._bias = -1
            self._matmul.set_bias(bias)
            self._bias = bias
        factors = alpha, beta if source else 0.0
        if factors != self._factors and not self._matmul.whole:
            self._factors = None
            # The library reads both before it returns, even while a stream is captured.
            self._alpha.value, self._beta.value = (self._matmul.scalar(each).value for each in factors)
            self._factors = factors
        self._matmul.launch(
            self._stream, Copy(a, b, c, source, bias, alpha, beta), self._algorithm, self._workspace, self._at_alpha,
            self._at_beta,
        )  # fmt: skip


class _Wanted(Shared):
    """Records which scratch memory a launcher asks for; shares no descriptors."""

    def __init__(
        self, anywhere: int, strides: Mapping[str, Strides], programs: Programs | None, smem_bytes: int
    ) -> None:
        super().__init__(strides)
        self._anywhere, self._programs, self._smem_bytes = anywhere, programs, smem_bytes
        self.found: dict[str, Scratch] = {}
        self._own: list[Any] = []

    def loaded(self, cubin: bytes, load: Callable[[bytes], Any]) -> Any:  # noqa: ANN401
        if self._programs is None:
            self._own.append(load(cubin))
            return self._own[-1]
        key = hashlib.sha256(cubin).digest(), self._smem_bytes
        if key not in self._programs:
            self._programs[key] = load(cubin)
        return self._programs[key]

    def unload(self) -> None:
        """Frees what was loaded for this call alone."""
        for program in self._own:
            program.unload()

    def scratch(self, name: str, size_bytes: int, *, zeroed: bool = False) -> int:
        self.found[name] = Scratch(size_bytes, zeroed)
        return self._anywhere

    def maps(self, box: Box) -> Callable[[int], TensorMap]:
        return partial(_placed, box)


def _placed(box: Box, address: int) -> TensorMap:
    room = ctypes.create_string_buffer(MAP_BYTES + MAP_ALIGN_BYTES)
    aligned = -ctypes.addressof(room) % MAP_ALIGN_BYTES
    made = (ctypes.c_char * MAP_BYTES).from_buffer(room, aligned)
    ctypes.memmove(made, box.encode(address), MAP_BYTES)
    return made
