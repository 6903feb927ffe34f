"""The dump kernels on a GPU: builds, launches, arrays in and out."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from cuda.bindings import driver as cu

from space.layouts.boxes import BoxPlan
from workers.build import Build, BuildFailure, compile_source
from workers.cuda.driver import Arguments, Buffer, Launch, Module, Stream, check

ARCH = "sm_90a"
_TYPES = {1: "UINT8", 2: "UINT16", 4: "UINT32"}


class Gpu:
    """GPU 0, with its primary context current."""

    def __init__(self, cache_dir: Path) -> None:
        self._cache_dir = cache_dir
        check("cuInit", cu.cuInit(0))
        device = check("cuDeviceGet", cu.cuDeviceGet(0))
        context = check("cuDevicePrimaryCtxRetain", cu.cuDevicePrimaryCtxRetain(device))
        check("cuCtxSetCurrent", cu.cuCtxSetCurrent(context))
        self._stream = Stream()
        self._modules: dict[str, Module] = {}

    def build(self, sources: Sequence[str]) -> None:
        """Compiles many sources at once, so that launching them later finds them in the cache."""
        self._compiled(sources[0])
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(self._compiled, sources))

    def launch(
        self, source: str, entry: str, blocks: int, threads: int, smem_bytes: int, *arguments: object
    ) -> None:
        """One launch, finished on return. Buffers go in by their addresses, whole numbers as C int."""
        if source not in self._modules:
            self._modules[source] = Module(self._compiled(source).cubin)
        launch = Launch(self._modules[source].function(entry), threads, smem_bytes)
        launch.set_grid(blocks)
        launch(self._stream, Arguments(*(_argument(each) for each in arguments)))
        self._stream.synchronize()

    def upload(self, array: np.ndarray) -> Buffer:
        """A copy in device memory, there before anything is launched after."""
        whole = np.ascontiguousarray(array)
        buffer = Buffer.allocate(whole.nbytes)
        check("cuMemcpyHtoD", cu.cuMemcpyHtoD(buffer.address, whole.ctypes.data, whole.nbytes))
        # The copy may still be on its way, and our stream does not wait for it.
        check("cuCtxSynchronize", cu.cuCtxSynchronize())
        return buffer

    def download(self, buffer: Buffer, shape: tuple[int, ...]) -> np.ndarray:
        """32-bit words from device memory; the buffer is freed."""
        words = np.empty(shape, dtype=np.uint32)
        check("cuMemcpyDtoH", cu.cuMemcpyDtoH(words.ctypes.data, buffer.address, words.nbytes))
        buffer.free()
        return words

    # ------------------------------------------------------------------------------------- experiments

    def mma_sync(self, source: str, a: np.ndarray, b: np.ndarray, words_d: int) -> np.ndarray:
        """`RunMma` of `layout_experiments`."""
        d = self.upload(np.full((len(a), 32, words_d), 0xFFFFFFFF, np.uint32))
        operands = self.upload(a), self.upload(b)
        self.launch(source, "dump_mma_sync", len(a), 32, 0, *operands, d)
        _free(operands)
        return self.download(d, (len(a), 32, words_d))

    def wgmma(
        self, source: str, images: np.ndarray, of_a: int, of_b: int, a: np.ndarray | None, words_d: int
    ) -> np.ndarray:
        """`RunWgmma` of `layout_experiments`."""
        count, words = images.shape
        d = self.upload(np.full((count, 128, words_d), 0xFFFFFFFF, np.uint32))
        operands = self.upload(images), self.upload(np.zeros(4, np.uint32) if a is None else a)
        self.launch(source, "dump_wgmma", count, 128, 4 * words, operands[0], words, ctypes.c_uint64(of_a),
                    ctypes.c_uint64(of_b), operands[1], d)  # fmt: skip
        _free(operands)
        return self.download(d, (count, 128, words_d))

    def ldmatrix(self, source: str, entry: str, image: np.ndarray, offsets: np.ndarray, count: int) -> np.ndarray:
        """Registers [32, count] of one warp."""
        registers = self.upload(np.full((32, count), 0xFFFFFFFF, np.uint32))
        inputs = self.upload(image), self.upload(offsets.astype(np.uint32))
        self.launch(source, entry, 1, 32, image.nbytes, inputs[0], image.size, inputs[1], registers)
        _free(inputs)
        return self.download(registers, (32, count))

    def stmatrix(
        self, source: str, entry: str, image: np.ndarray, offsets: np.ndarray, registers: np.ndarray
    ) -> np.ndarray:
        """The image after the store."""
        after = self.upload(image)
        inputs = self.upload(offsets.astype(np.uint32)), self.upload(registers)
        self.launch(source, entry, 1, 32, image.nbytes, after, image.size, *inputs)
        _free(inputs)
        return self.download(after, image.shape)

    def tma(
        self, source: str, matrix: np.ndarray, plan: BoxPlan, row: int, column: int, image: np.ndarray
    ) -> np.ndarray:
        """Shared memory after the boxes of a plan, taken from (row, column) of a matrix on."""
        tensor = self.upload(matrix)
        after = self.upload(image)
        boxes = [(column + box.column, row + box.row, box.smem_offset_bytes) for box in plan.boxes]
        places = self.upload(np.array(boxes, np.int32))
        moved = plan.rows * plan.columns * plan.element_bytes
        # Box heights differ only where the last one is short: such plans are not dumped.
        tensor_map = _tensor_map(tensor.address, matrix, plan, plan.boxes[0].rows)
        self.launch(source, "dump_tma", 1, 128, image.nbytes + 16, tensor_map, places, len(boxes),
                    ctypes.c_uint32(moved), after, image.size)  # fmt: skip
        _free((tensor, places))
        return self.download(after, image.shape)

    def _compiled(self, source: str) -> Build:
        made = compile_source(source, ARCH, self._cache_dir)
        assert not isinstance(made, BuildFailure), f"{made.reason}\n{made.log}"
        return made


def _argument(value: object) -> ctypes._SimpleCData | ctypes.Array:  # type: ignore[type-arg]
    if isinstance(value, Buffer):
        return ctypes.c_void_p(value.address)
    return ctypes.c_int(value) if isinstance(value, int) else value  # type: ignore[return-value]


def _free(buffers: Sequence[Buffer]) -> None:
    for buffer in buffers:
        buffer.free()


def _tensor_map(address: int, matrix: np.ndarray, plan: BoxPlan, box_rows: int) -> ctypes.Array:  # type: ignore[type-arg]
    rows, columns = matrix.shape
    u32, u64 = cu.cuuint32_t, cu.cuuint64_t
    kind = f"CU_TENSOR_MAP_DATA_TYPE_{_TYPES[matrix.itemsize]}"
    swizzle = "NONE" if plan.swizzle.name == "none" else plan.swizzle.name
    made = check(
        "cuTensorMapEncodeTiled",
        cu.cuTensorMapEncodeTiled(
            getattr(cu.CUtensorMapDataType, kind), 2, address, [u64(columns), u64(rows)],
            [u64(columns * matrix.itemsize)], [u32(plan.box_columns), u32(box_rows)], [u32(1), u32(1)],
            cu.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            getattr(cu.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{swizzle}"),
            cu.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
            cu.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        ),
    )  # fmt: skip
    return ctypes.create_string_buffer(ctypes.string_at(made.getPtr(), 128), 128)
