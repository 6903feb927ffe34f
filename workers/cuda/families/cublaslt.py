"""cuBLASLt as a family: its heuristic's candidates, launched like ours through nvmath-python's bindings."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

import numpy as np

from space.config import Config
from space.devices import DeviceProfile
from space.families.common import WORKSPACE_BYTES
from space.families.cublaslt import CUBLASLT, MAX_RANKS
from space.kinds.gemm import Gemm
from workers.cuda.copies import Copy
from workers.cuda.driver import Buffer, CudaError, Stream
from workers.cuda.families.launcher import Launcher, Library
from workers.cuda.families.shared import Shared

#: library_types.h: cudaDataType_t.
_TYPES: Final = {
    "f32": 0, "tf32": 0, "fp16": 2, "int8": 3, "s32": 10, "bf16": 14, "fp8_e4m3": 28, "fp8_e5m2": 29,
}  # fmt: skip
#: cublas_api.h: cublasComputeType_t and cublasOperation_t.
_COMPUTE_32F, _COMPUTE_32I, _COMPUTE_TF32 = 68, 72, 77
_OP_N, _OP_T = 0, 1
#: cublasLt.h: cublasLtEpilogue_t; the values are bits that add up.
_EPILOGUES: Final = {"relu": 2, "bias": 4, "gelu": 32}


class Handle:
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


@cache
def opened() -> tuple[Handle | None, str]:
    """The handle of this process; None and the reason where the library can't be used.

    Raises:
        CudaError: the GPU can't be used.
    """
    try:
        return Handle(), ""
    except CudaError:
        raise
    except Exception as error:
        # Not installed, or not loadable here: then there is no baseline, and users see the reason.
        return None, f"cuBLASLt can't be used ({type(error).__name__}: {error}): no baseline is measured"


def unsupported(problem: Gemm) -> str:
    """Why the library cannot have such a product; empty where it may. The heuristic decides."""
    if missing := {problem.dtype_a, problem.dtype_b, problem.dtype_c} - set(_TYPES):
        return f"cuBLASLt has no {', '.join(sorted(missing))}"
    if "silu" in problem.epilogue_parts:
        return "cuBLASLt fuses no silu"
    if problem.dtype_c in ("fp8_e4m3", "fp8_e5m2") and problem.epilogue_parts & {"beta", "bias"}:
        return f"cuBLASLt adds nothing of our types to an {problem.dtype_c} output"
    if problem.dtype_acc == "s32" and (problem.dtype_c != "s32" or problem.epilogue_parts):
        return "cuBLASLt scales no s32 sums to our types"
    return ""


class Matmul:
    """The product of one problem, described to the library.

    Our row-major matrices are column-major and transposed to the library, which computes Cᵀ = op(B)·op(A): B is its
    first operand. B stored [N,K] is its matrix [K,N] and must be transposed; B stored [K,N] must not. For A it is the
    other way round.
    """

    def __init__(self, library: Handle, problem: Gemm) -> None:
        self._library, self._problem = library, problem
        m, n, k = problem.m, problem.n, problem.k
        whole = self._whole = problem.dtype_acc == "s32"
        self._scalar: Any = ctypes.c_int32 if whole else ctypes.c_float
        compute = _COMPUTE_32I if whole else _COMPUTE_TF32 if problem.dtype_a == "tf32" else _COMPUTE_32F
        self._descriptor = library.lt.matmul_desc_create(compute, _TYPES["s32" if whole else "f32"])
        self._describe_operation()
        self._first = self._layout(problem.dtype_b, *((k, n) if problem.layout[1] == "t" else (n, k)))
        self._second = self._layout(problem.dtype_a, *((k, m) if problem.layout[0] == "n" else (m, k)))
        self._output = self._layout(problem.dtype_c, n, m)
        # With an fp8 output the C that beta scales is bf16, read or not (cuBLAS documentation, cublasLtMatmul).
        self._source = self._layout("bf16" if problem.dtype_c.startswith("fp8") else problem.dtype_c, n, m)
        self._results, self._count = self._ask_heuristic()

    @property
    def ranks(self) -> range:
        """Indices into the heuristic's list; empty where the library has no such product."""
        return range(self._count)

    def launch(self, stream: Stream, copy: Copy, rank: int) -> None:
        """Runs one of the candidates once.

        Raises:
            CudaError: the library refuses it, as it does with some of its own candidates.
        """
        lt, library = self._library.lt, self._library
        # Whole numbers come with alpha = 1 and beta = 0 only, see `unsupported`.
        number = int if self._whole else float
        alpha, beta = self._scalar(number(copy.alpha)), self._scalar(number(copy.beta))
        if copy.bias:
            self._set(lt.MatmulDescAttribute.BIAS_POINTER, copy.bias, np.uint64)
        try:
            lt.matmul(
                library.handle, self._descriptor, ctypes.addressof(alpha), copy.b, self._first, copy.a, self._second,
                ctypes.addressof(beta), copy.source or copy.c, self._source, copy.c, self._output,
                self._algorithm(rank), library.workspace.address, WORKSPACE_BYTES, int(stream.handle),
            )  # fmt: skip
        except lt.cuBLASLtError as error:
            raise CudaError(f"cublasLtMatmul ({error})", "CUDA_ERROR_NOT_SUPPORTED") from error

    def note(self, rank: int) -> str:
        """The library's description of a candidate: algorithm, tile, stages, cluster, split-K."""
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
        for layout in (self._first, self._second, self._output, self._source):
            lt.matrix_layout_destroy(layout)
        lt.matmul_desc_destroy(self._descriptor)

    def _describe_operation(self) -> None:
        kinds, problem = self._library.lt.MatmulDescAttribute, self._problem
        self._set(kinds.TRANSA, _OP_T if problem.layout[1] == "t" else _OP_N, np.int32)
        self._set(kinds.TRANSB, _OP_N if problem.layout[0] == "n" else _OP_T, np.int32)
        if problem.dtype_a.startswith("fp8"):
            self._set(kinds.FAST_ACCUM, int(problem.numerics == "fast"), np.int8)
        if fused := problem.epilogue_parts & set(_EPILOGUES):
            self._set(kinds.EPILOGUE, sum(_EPILOGUES[part] for part in fused), np.int32)
        if "bias" in fused:
            self._set(kinds.BIAS_DATA_TYPE, _TYPES[problem.dtype_bias], np.int32)

    def _set(self, attribute: Any, value: int, dtype: Any) -> None:  # noqa: ANN401
        held = np.array([value], dtype=dtype)
        self._library.lt.matmul_desc_set_attribute(self._descriptor, attribute, held.ctypes.data, held.nbytes)

    def _layout(self, dtype: str, rows: int, columns: int) -> int:
        """A dense column-major matrix, one for each product of the batch."""
        lt, batch = self._library.lt, self._problem.batch
        layout = lt.matrix_layout_create(_TYPES[dtype], rows, columns, rows)
        if batch > 1:
            for attribute, value, kind in (
                (lt.MatrixLayoutAttribute.BATCH_COUNT, batch, np.int32),
                (lt.MatrixLayoutAttribute.STRIDED_BATCH_OFFSET, rows * columns, np.int64),
            ):
                held = np.array([value], dtype=kind)
                lt.matrix_layout_set_attribute(layout, attribute, held.ctypes.data, held.nbytes)
        return int(layout)

    def _ask_heuristic(self) -> tuple[Any, int]:
        lt, library = self._library.lt, self._library
        results, count = lt.MatmulHeuristicResult(MAX_RANKS), np.zeros(1, dtype=np.int32)
        with _preference(lt) as preference:
            try:
                lt.matmul_algo_get_heuristic(
                    library.handle, self._descriptor, self._first, self._second, self._source, self._output,
                    preference, MAX_RANKS, results.ptr, count.ctypes.data,
                )  # fmt: skip
            except lt.cuBLASLtError:
                # Not supported is an answer: the library has no candidates.
                return results, 0
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


class LibraryLauncher(Launcher):
    """One of the heuristic's candidates, by its rank."""

    def __init__(self, problem: Gemm, config: Config, cubin: bytes, device: DeviceProfile, shared: Shared) -> None:
        matmul, self._rank = _matmul(problem, shared), config.number("rank")
        if matmul is None or self._rank not in matmul.ranks:
            raise CudaError(f"cublasLtMatmulAlgoGetHeuristic returns no rank {self._rank}", "CUDA_ERROR_NOT_FOUND")
        self._matmul, self.note = matmul, matmul.note(self._rank)

    def launch(self, stream: Stream, copy: Copy) -> None:
        """Runs it once.

        Raises:
            CudaError: the library refuses it, as it does with some of its own candidates.
        """
        self._matmul.launch(stream, copy, self._rank)

    def unload(self) -> None:
        """Frees nothing: the description of the product is shared by all ranks."""

    @classmethod
    def library(cls) -> Library:
        """cuBLASLt's version, or why it can't be used."""
        handle, missing = opened()
        return Library(handle.version if handle else "", missing)

    @classmethod
    def candidates(cls, problem: Gemm, shared: Shared) -> tuple[Config, ...]:
        """The heuristic's list, its first choice first; empty where the library has no such product."""
        matmul = _matmul(problem, shared)
        return tuple(CUBLASLT.config({"rank": rank}) for rank in matmul.ranks) if matmul else ()


def _matmul(problem: Gemm, shared: Shared) -> Matmul | None:
    """The problem's product, described to the library; None where it has no such product."""
    handle, _ = opened()
    if handle is None or unsupported(problem):
        return None
    return shared.keep(Matmul, lambda: Matmul(handle, problem))


@contextmanager
def _preference(lt: Any) -> Iterator[int]:  # noqa: ANN401
    preference = lt.matmul_preference_create()
    most = np.array([WORKSPACE_BYTES], dtype=np.uint64)
    attribute = lt.MatmulPreferenceAttribute.MAX_WORKSPACE_BYTES
    lt.matmul_preference_set_attribute(preference, attribute, most.ctypes.data, most.nbytes)
    try:
        yield preference
    finally:
        lt.matmul_preference_destroy(preference)


def _name(kind: Any, number: int) -> str:  # noqa: ANN401
    try:
        return str(kind(number).name).removeprefix("TILE_").removeprefix("STAGES_").removeprefix("SHAPE_").lower()
    except ValueError:
        return str(number)


LAUNCHER: Final = LibraryLauncher
