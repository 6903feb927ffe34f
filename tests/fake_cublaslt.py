"""A recorder in the place of `nvmath.bindings.cublasLt`: remembers what it is told, and knows a few algorithms."""

from __future__ import annotations

import ctypes
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import numpy as np

#: Where the recorder keeps an attribute in an algorithm: byte and size.
PLACES = {
    "ID": (0, 4), "TILE_ID": (4, 4), "STAGES_ID": (8, 4), "SPLITK_NUM": (12, 4), "REDUCTION_SCHEME": (16, 4),
    "CTA_SWIZZLING": (20, 4), "CUSTOM_OPTION": (24, 4), "INNER_SHAPE_ID": (28, 2), "CLUSTER_SHAPE_ID": (30, 2),
}  # fmt: skip
#: What its heuristic returns: the third is the first again.
LISTED = [
    {"ID": 66, "TILE_ID": 20, "STAGES_ID": 35, "SPLITK_NUM": 1, "CLUSTER_SHAPE_ID": 3},
    {"ID": 39, "TILE_ID": 15, "STAGES_ID": 35, "SPLITK_NUM": -1, "CUSTOM_OPTION": 2**32 - 1, "CLUSTER_SHAPE_ID": 29},
    {"ID": 66, "TILE_ID": 20, "STAGES_ID": 35, "SPLITK_NUM": 1, "CLUSTER_SHAPE_ID": 3},
]
WORKSPACE_BYTES = {66: 0, 39: 4096, 7: 2**30}


class Names:
    """Any attribute is its own name."""

    def __getattr__(self, name: str) -> str:
        return name


#: Some tiles and clusters of the library's, by their numbers.
TILES = {13: (64, 64), 15: (15, 64), 18: (128, 64), 20: (128, 128), 35: (35, 64), 157: (104, 64)}
CLUSTERS = {2: (1, 1), 3: (2, 1), 5: (1, 2), 8: (1, 4), 29: (5, 2)}
Tile = IntEnum("Tile", {"TILE_UNDEFINED": 0} | {f"TILE_{m}x{n}": number for number, (m, n) in TILES.items()})
Cluster = IntEnum("Cluster", {"SHAPE_AUTO": 0} | {f"SHAPE_{m}x{n}x1": number for number, (m, n) in CLUSTERS.items()})


class Recorder:
    """Takes the place of `nvmath.bindings.cublasLt` and remembers what it was told."""

    MatmulDescAttribute = MatrixLayoutAttribute = MatmulPreferenceAttribute = Names()
    MatmulAlgoConfigAttribute = MatmulAlgoCapAttribute = Names()
    MatmulTile = MatmulStages = Tile
    ClusterShape = Cluster

    class cuBLASLtError(Exception):  # noqa: N801
        pass

    def __init__(self, supported: bool = True, listed: list[dict[str, int]] = LISTED) -> None:
        self.layouts: list[tuple[int, int, int, int]] = []
        self.attributes: dict[str, int] = {}
        self.calls: list[tuple[int, ...]] = []
        self.scalars: list[tuple[float, float]] = []
        self.initialized: list[tuple[int, ...]] = []
        self._supported, self._listed = supported, listed

    def matmul_desc_create(self, compute: int, scale: int) -> int:
        self.attributes |= {"compute": compute, "scale": scale}
        return 1

    def matmul_desc_destroy(self, _: int) -> None: ...
    def matrix_layout_destroy(self, _: int) -> None: ...

    def matrix_layout_create(self, dtype: int, rows: int, columns: int, ld: int) -> int:
        self.layouts.append((dtype, rows, columns, ld))
        return len(self.layouts)

    def matmul_desc_set_attribute(self, _: int, attribute: str, address: int, size: int) -> None:
        kind = {1: np.int8, 4: np.int32, 8: np.uint64}[size]
        self.attributes[attribute] = int(np.frombuffer(ctypes.string_at(address, size), dtype=kind)[0])

    def matrix_layout_set_attribute(self, layout: int, attribute: str, address: int, size: int) -> None:
        value = int.from_bytes(ctypes.string_at(address, size), "little")
        self.attributes[f"{attribute} {layout}"] = value

    def matmul_preference_create(self) -> int:
        return 9

    def matmul_preference_set_attribute(self, *_: int) -> None: ...
    def matmul_preference_destroy(self, _: int) -> None: ...

    def matmul_algo_get_heuristic(self, *arguments: int) -> None:
        *_, most, results, count = arguments
        assert most == 16
        if not self._supported:
            raise self.cuBLASLtError
        for place, algorithm in enumerate(self._listed):
            for name, value in algorithm.items():
                self._write(results + 96 * place, name, value)
            # After an algorithm of 64 bytes comes its workspace.
            ctypes.c_uint64.from_address(results + 96 * place + 64).value = WORKSPACE_BYTES[algorithm["ID"]]
        ctypes.c_int32.from_address(count).value = len(self._listed)

    def matmul_algo_init(self, *arguments: int) -> None:
        *_, number, address = arguments
        if number not in WORKSPACE_BYTES:
            raise self.cuBLASLtError(f"no algorithm {number}")
        self.initialized.append(arguments[1:-2])
        ctypes.memset(address, 0, 64)
        self._write(address, "ID", number)

    def matmul_algo_config_get_attribute(self, address: int, name: str, to: int, size: int, written: int) -> None:
        at, wanted = PLACES[name]
        if name == "INNER_SHAPE_ID":
            raise self.cuBLASLtError("no inner shape")
        assert size == wanted
        ctypes.memmove(to, address + at, size)
        ctypes.c_size_t.from_address(written).value = size

    def matmul_algo_config_set_attribute(self, address: int, name: str, source: int, size: int) -> None:
        at, wanted = PLACES[name]
        assert (size, name != "ID") == (wanted, True)
        if name == "INNER_SHAPE_ID":
            raise self.cuBLASLtError("no inner shape")
        ctypes.memmove(address + at, source, size)

    def matmul_algo_cap_get_attribute(self, _: int, name: str, to: int, size: int, written: int) -> None:
        if name == "MIN_ALIGNMENT_C_BYTES":
            raise self.cuBLASLtError
        ctypes.c_uint32.from_address(to).value = {"A": 16, "B": 8, "D": 2}[name.split("_")[2]]

    def matmul_algo_check(self, *arguments: int) -> None:
        *_, algorithm, result = arguments
        number = ctypes.c_int32.from_address(algorithm).value
        ctypes.c_uint64.from_address(result + 64).value = WORKSPACE_BYTES[number]
        if ctypes.c_uint32.from_address(algorithm + PLACES["TILE_ID"][0]).value == 13:
            raise self.cuBLASLtError("no such tile")

    def matmul(self, *arguments: int) -> None:
        kind = np.dtype({0: np.float32, 2: np.float16, 10: np.int32}[self.attributes["scale"]])
        read = [np.frombuffer(ctypes.string_at(arguments[at], kind.itemsize), kind)[0].item() for at in (2, 7)]
        self.scalars.append((read[0], read[1]))
        self.calls.append(arguments)

    @staticmethod
    def _write(address: int, name: str, value: int) -> None:
        at, size = PLACES[name]
        ctypes.memmove(address + at, value.to_bytes(size, "little", signed=value < 0), size)


def library_of(lt: Recorder) -> Any:  # noqa: ANN401
    return SimpleNamespace(lt=lt, handle=7, workspace=SimpleNamespace(address=512), version="130200")


def numbers_of(address: int) -> dict[str, int]:
    """Attributes of the algorithm at an address."""
    data = ctypes.string_at(address, 64)
    return {
        name: int.from_bytes(data[at : at + size], "little", signed=name == "SPLITK_NUM")
        for name, (at, size) in PLACES.items()
    }
