"""State that a problem's candidates share on the device: tensor maps, scratch memory, a library's descriptions."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Final, Protocol, TypeVar, cast

from cuda.bindings import driver as cu

from workers.cuda.copies import Strides
from workers.cuda.driver import Buffer, CudaError, check

_SWIZZLES: Final = {
    0: cu.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_NONE,
    32: cu.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_32B,
    64: cu.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_64B,
    128: cu.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
}
_PROMOTIONS: Final = {
    0: cu.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
    64: cu.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_64B,
    128: cu.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
    256: cu.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
}
#: Bits travel as they are, so that the type only says how wide an element is.
_TYPES: Final = {
    1: cu.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_UINT8,
    2: cu.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_UINT16,
    4: cu.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_UINT32,
}

TensorMap = ctypes.Array[ctypes.c_char]


@dataclass(frozen=True, slots=True)
class Box:
    """A stack of row-major matrices, and the box in which TMA reads or writes them.

    Attributes:
        columns, lines, batch: extents; columns are contiguous.
        pitch_bytes, batch_pitch_bytes: from line to line, from matrix to matrix; multiples of 16.
        box_columns, box_lines: extents of a box; box_columns fill one swizzle span or less.
        swizzle_bytes: 0, 32, 64 or 128.
        l2_promotion: 0, 64, 128 or 256 bytes.
    """

    element_bytes: int
    columns: int
    lines: int
    batch: int
    pitch_bytes: int
    batch_pitch_bytes: int
    box_columns: int
    box_lines: int
    swizzle_bytes: int
    l2_promotion: int = 256

    def encode(self, address: int) -> TensorMap:
        """The 128-byte descriptor.

        Args:
            address: of the first element, a multiple of 16.

        Raises:
            CudaError: the driver refuses it; the legality rules should have.
        """
        u32, u64 = cu.cuuint32_t, cu.cuuint64_t
        made = check(
            "cuTensorMapEncodeTiled",
            cu.cuTensorMapEncodeTiled(
                _TYPES[self.element_bytes], 3, address,
                [u64(self.columns), u64(self.lines), u64(self.batch)],
                [u64(self.pitch_bytes), u64(self.batch_pitch_bytes)],
                [u32(self.box_columns), u32(self.box_lines), u32(1)], [u32(1), u32(1), u32(1)],
                cu.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE, _SWIZZLES[self.swizzle_bytes],
                _PROMOTIONS[self.l2_promotion], cu.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            ),
        )  # fmt: skip
        return ctypes.create_string_buffer(ctypes.string_at(made.getPtr(), 128), 128)


class Place:
    """Where prepared arguments hold the address of one operand.

    Args:
        maps: descriptors of it, which must not be shared.
        words: copies of the address, as `word` returns them.

    Attributes:
        map_addresses, word_addresses: where these stand in this process.
    """

    def __init__(self, maps: Sequence[TensorMap] = (), words: Sequence[ctypes.c_uint64] = ()) -> None:
        self._maps, self._words = maps, words
        self.map_addresses = tuple(ctypes.addressof(each) for each in maps)
        self.word_addresses = tuple(ctypes.addressof(each) for each in words)

    def move(self, address: int) -> None:
        """Points the arguments at another address; a multiple of 16 where there are descriptors.

        Raises:
            CudaError: the driver refuses.
        """
        for each in self.map_addresses:
            if error := _replace_address()(each, address):
                raise CudaError("cuTensorMapReplaceAddress", f"error {error}")
        for word in self._words:
            word.value = address


def word(arguments: ctypes.Structure, field: str) -> ctypes.c_uint64:
    """A pointer field of arguments, as a number that can be written."""
    return ctypes.c_uint64.from_buffer(arguments, getattr(type(arguments), field).offset)


@cache
def _replace_address() -> Callable[[int, int], int]:
    """The driver's own call: the bindings own their descriptors, ours lie in the arguments of a launch.

    `PyDLL` keeps the interpreter's lock: the call only writes the descriptor, and releasing the lock takes longer.
    """
    function = ctypes.PyDLL("libcuda.so.1").cuTensorMapReplaceAddress
    function.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    return cast("Callable[[int, int], int]", function)


class Freeable(Protocol):
    """An object that holds memory until it is freed."""

    def free(self) -> None:
        """Gives the memory back."""


class Unloadable(Protocol):
    """A program on the device."""

    def unload(self) -> None:
        """Frees it."""


Kept = TypeVar("Kept", bound=Freeable)
Program = TypeVar("Program", bound=Unloadable)


class Shared:
    """Tensor maps by box and address, and scratch memory by name; everything lives as long as the problem.

    Attributes:
        strides: of the operands `a` and `b` whose lines are apart; the others are dense.
    """

    def __init__(self, strides: Mapping[str, Strides] = MappingProxyType({})) -> None:
        self.strides = strides
        self._maps: dict[Box, Callable[[int], TensorMap]] = {}
        self._scratch: dict[str, Buffer] = {}
        self._outgrown: list[Buffer] = []
        self._zeroed: list[Buffer] = []
        self._kept: dict[type[Freeable], Freeable] = {}
        self._fresh: list[Unloadable] = []

    @contextmanager
    def loading(self) -> Iterator[None]:
        """A launcher is made in the body: if that fails, the programs that it loaded are freed, as nobody has them.

        Raises:
            CudaError: that of the body.
        """
        self._fresh = []
        try:
            yield
        except CudaError:
            for program in self._fresh:
                # A lost context is the error of the body.
                with suppress(CudaError):
                    program.unload()
            raise

    def keep(self, kind: type[Kept], make: Callable[[], Kept]) -> Kept:
        """The problem's only object of a kind, made when it is first asked for."""
        if kind not in self._kept:
            self._kept[kind] = make()
        return cast("Kept", self._kept[kind])

    def maps(self, box: Box) -> Callable[[int], TensorMap]:
        """Descriptors of a box by address; most candidates cut operands into the same boxes."""
        if box not in self._maps:
            self._maps[box] = cache(box.encode)
        return self._maps[box]

    def loaded(self, cubin: bytes, load: Callable[[bytes], Program]) -> Program:
        """The program of a cubin, as `load` loads it."""
        program = load(cubin)
        self._fresh.append(program)
        return program

    def scratch(self, name: str, size_bytes: int, *, zeroed: bool = False) -> int:
        """Address of device memory that one pass of a launch leaves to the next.

        Once handed out it is never written here: another candidate may be using the same memory right now.

        Args:
            zeroed: all bytes are 0 when it is first handed out; kernels that count in it leave it zero.

        Raises:
            CudaError: out of memory.
        """
        kept = self._scratch.get(name)
        if kept is None or kept.size_bytes < size_bytes:
            # Where memory runs out, what was there stays in its place.
            larger = Buffer.allocate(size_bytes)
            if kept is not None:
                # Graphs of loaded candidates may still point at it.
                self._outgrown.append(kept)
            kept = self._scratch[name] = larger
            if zeroed:
                self._zeroed.append(kept)
                _zero(kept)
        return kept.address

    def reset(self) -> None:
        """Zeroes memory in which a failed kernel may have left counts; nothing may be running."""
        for buffer in self._zeroed:
            _zero(buffer)

    def free(self) -> None:
        """Gives all memory back; tensor maps, which point at freed operands, go too."""
        for kept in self._kept.values():
            kept.free()
        self._kept = {}
        for buffer in (*self._scratch.values(), *self._outgrown):
            buffer.free()
        self._scratch, self._outgrown, self._zeroed, self._maps = {}, [], [], {}


def _zero(buffer: Buffer) -> None:
    check("cuMemsetD8", cu.cuMemsetD8(buffer.address, 0, buffer.size_bytes))
    # It ran on the default stream, which the streams of kernels don't wait for.
    check("cuStreamSynchronize", cu.cuStreamSynchronize(cu.CUstream(0)))
