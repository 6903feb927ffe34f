"""cuBLASLt as a family: its heuristic's candidates, launched like ours, through nvmath-python's bindings."""

from __future__ import annotations

import ctypes
from typing import Any, Final

import numpy as np

from space.families.cublaslt import MOST_RANKS
from space.problem import Problem
from workers.cuda.driver import Buffer, Stream
from workers.cuda.operands import Copy

WORKSPACE_BYTES: Final = 64 * 2**20
#: library_types.h and cublas_api.h: CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUBLAS_OP_T.
_CUDA_R_16BF, _CUDA_R_32F, _COMPUTE_32F, _OP_T = 14, 0, 68, 1


class Library:
    """A handle of the library, its workspace and its version.

    Raises:
        ImportError, OSError: the library or its bindings are not installed.
    """

    def __init__(self) -> None:
        from nvmath.bindings import cublasLt

        self.lt: Any = cublasLt
        self.handle = cublasLt.create()
        self.workspace = Buffer.allocate(WORKSPACE_BYTES)
        self.version = str(cublasLt.get_version())


class Matmul:
    """The product of one problem, described to the library.

    Row-major C[M,N] = A[M,K]·B[N,K]ᵀ is column-major Cᵀ[N,M] = Bᵀ·A with B[K,N] transposed and A[K,M] as it
    is; so B is the library's first operand.
    """

    def __init__(self, library: Library, problem: Problem) -> None:
        self._library, self._problem = library, problem
        lt = library.lt
        self._alpha, self._beta = ctypes.c_float(1.0), ctypes.c_float(0.0)
        self._descriptor = lt.matmul_desc_create(_COMPUTE_32F, _CUDA_R_32F)
        transposed = np.array([_OP_T], dtype=np.int32)
        lt.matmul_desc_set_attribute(
            self._descriptor, lt.MatmulDescAttribute.TRANSA, transposed.ctypes.data, transposed.nbytes
        )
        m, n, k = problem.m, problem.n, problem.k
        self._first = lt.matrix_layout_create(_CUDA_R_16BF, k, n, k)
        self._second = lt.matrix_layout_create(_CUDA_R_16BF, k, m, k)
        self._output = lt.matrix_layout_create(_CUDA_R_16BF, n, m, n)
        self._results, self._count = self._ask_heuristic()

    @property
    def ranks(self) -> range:
        """Places in the heuristic's list."""
        return range(self._count)

    def launch(self, stream: Stream, copy: Copy, rank: int) -> None:
        """Runs one of the candidates once."""
        lt, library = self._library.lt, self._library
        lt.matmul(
            library.handle, self._descriptor, ctypes.addressof(self._alpha), copy.b, self._first, copy.a, self._second,
            ctypes.addressof(self._beta), copy.c, self._output, copy.c, self._output, self._algorithm(rank),
            library.workspace.address, WORKSPACE_BYTES, int(stream.handle),
        )  # fmt: skip

    def note(self, rank: int) -> str:
        """What the library says of a candidate: algorithm, tile, stages, cluster, split-K."""
        lt = self._library.lt
        kinds = lt.MatmulAlgoConfigAttribute
        tile = _name(lt.MatmulTile, self._attribute(rank, kinds.TILE_ID, np.uint32))
        stages = _name(lt.MatmulStages, self._attribute(rank, kinds.STAGES_ID, np.uint32))
        cluster = _name(lt.ClusterShape, self._attribute(rank, kinds.CLUSTER_SHAPE_ID, np.uint16))
        return (
            f"algorithm {self._attribute(rank, kinds.ID, np.int32)}, tile {tile}, stages {stages}, cluster {cluster}, "
            f"split-K {self._attribute(rank, kinds.SPLITK_NUM, np.int32)}"
        )

    def free(self) -> None:
        """Frees the descriptions."""
        lt = self._library.lt
        for layout in (self._first, self._second, self._output):
            lt.matrix_layout_destroy(layout)
        lt.matmul_desc_destroy(self._descriptor)

    def _ask_heuristic(self) -> tuple[Any, int]:
        lt, library = self._library.lt, self._library
        preference = lt.matmul_preference_create()
        most = np.array([WORKSPACE_BYTES], dtype=np.uint64)
        attribute = lt.MatmulPreferenceAttribute.MAX_WORKSPACE_BYTES
        lt.matmul_preference_set_attribute(preference, attribute, most.ctypes.data, most.nbytes)
        results, count = lt.MatmulHeuristicResult(MOST_RANKS), np.zeros(1, dtype=np.int32)
        lt.matmul_algo_get_heuristic(
            library.handle, self._descriptor, self._first, self._second, self._output, self._output, preference,
            MOST_RANKS, results.ptr, count.ctypes.data,
        )  # fmt: skip
        lt.matmul_preference_destroy(preference)
        return results, int(count[0])

    def _algorithm(self, rank: int) -> int:
        # cublasLtMatmulHeuristicResult_t begins with the algorithm.
        return int(self._results.ptr) + rank * int(self._library.lt.matmul_heuristic_result_dtype.itemsize)

    def _attribute(self, rank: int, attribute: Any, dtype: Any) -> int:  # noqa: ANN401
        value, written = np.zeros(1, dtype=dtype), np.zeros(1, dtype=np.uint64)
        self._library.lt.matmul_algo_config_get_attribute(
            self._algorithm(rank), attribute, value.ctypes.data, value.nbytes, written.ctypes.data
        )
        return int(value[0])


def _name(kind: Any, number: int) -> str:  # noqa: ANN401
    try:
        return str(kind(number).name).removeprefix("TILE_").removeprefix("STAGES_").removeprefix("SHAPE_").lower()
    except ValueError:
        return str(number)
