"""Launcher of `sm90_wgmma`: tensor maps, grid and arguments. Knows nothing of timing or verification."""

from __future__ import annotations

import ctypes
from typing import Any, Final

from cuda.bindings import driver as cu

from space.config import Config
from space.family import family_named
from space.problem import DTYPE_BYTES, Problem
from workers.cuda.driver import Arguments, Launch, Module, Stream, check
from workers.cuda.operands import Copy

ENTRY: Final = "gemm"

_SWIZZLES: Final = {
    16: cu.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_NONE,
    32: cu.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_32B,
    64: cu.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_64B,
    128: cu.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
}

TensorMap = ctypes.Array[ctypes.c_char]
#: (address, columns, rows, box columns, box rows, swizzle bytes) → map
MapCache = dict[tuple[int, int, int, int, int, int], TensorMap]


def tensor_map(address: int, columns: int, rows: int, box_columns: int, box_rows: int, swizzle_bytes: int) -> TensorMap:
    """A descriptor of a dense row-major bf16 matrix, read or written in boxes.

    Raises:
        CudaError: the driver refuses it; the legality rules should have.
    """
    u32, u64 = cu.cuuint32_t, cu.cuuint64_t
    made = check(
        "cuTensorMapEncodeTiled",
        cu.cuTensorMapEncodeTiled(
            cu.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, address,
            [u64(columns), u64(rows)], [u64(columns * DTYPE_BYTES["bf16"])],
            [u32(box_columns), u32(box_rows)], [u32(1), u32(1)],
            cu.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE, _SWIZZLES[swizzle_bytes],
            cu.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            cu.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        ),
    )  # fmt: skip
    return ctypes.create_string_buffer(ctypes.string_at(made.getPtr(), 128), 128)


class Gemm:
    """One candidate, loaded; `launch(stream, copy)` runs it once.

    Args:
        maps: shared by the candidates of a problem: most of them cut operands into the same boxes.
    """

    def __init__(self, problem: Problem, config: Config, cubin: bytes, sm_count: int, maps: MapCache) -> None:
        self._problem, self._config, self._maps = problem, config, maps
        derived = family_named("sm90_wgmma").derive(problem, config)
        self._derived = derived
        self._module = Module(cubin)
        function = self._module.function(ENTRY)
        self._launch = Launch(function, derived["threads"], derived["shared_memory_bytes"], derived["cluster_size"])
        tiles = derived["tiles_m"] * derived["tiles_n"]
        self.clusters = max(1, min(tiles, self._launch.resident(sm_count)))
        self._launch.set_grid(self.clusters)
        self._arguments: dict[int, Arguments] = {}

    def launch(self, stream: Stream, copy: Copy) -> None:
        """Runs the kernel once."""
        if copy.c not in self._arguments:
            self._arguments[copy.c] = self._arguments_for(copy)
        self._launch(stream, self._arguments[copy.c])

    def unload(self) -> None:
        """Frees the program."""
        self._module.unload()

    def _arguments_for(self, copy: Copy) -> Arguments:
        p, number, derived = self._problem, self._config.number, self._derived
        span_a, span_b = number("swizzle_a") // 2, number("swizzle_b") // 2
        box_n = derived["store_box_n"]
        map_a = self._map(copy.a, p.k, p.m, span_a, number("tile_m") // number("cluster_n"), number("swizzle_a"))
        map_b = self._map(copy.b, p.k, p.n, span_b, number("tile_n") // number("cluster_m"), number("swizzle_b"))
        if self._config["epilogue"] == "tma":
            rows = number("tile_m") // number("consumer_warpgroups")
            map_c = self._map(copy.c, p.n, p.m, box_n, rows, box_n * 2)
        else:
            map_c = map_a
        return Arguments(
            map_a, map_b, map_c, ctypes.c_void_p(copy.c), ctypes.c_int(p.m), ctypes.c_int(p.n), ctypes.c_int(p.k),
            ctypes.c_longlong(p.n), ctypes.c_int(self._config["raster"] == "along_n"),
            ctypes.c_int(number("raster_group")),
        )  # fmt: skip

    def _map(self, *key: Any) -> TensorMap:  # noqa: ANN401
        if key not in self._maps:
            self._maps[key] = tensor_map(*key)
        return self._maps[key]
