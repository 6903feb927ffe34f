"""cuBLASLt as a family: its algorithms, launched like our kernels through nvmath-python's bindings.

It measures algorithms rebuilt from their attributes, so that another process with the same version of the library runs
the same.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, cached_property
from itertools import islice
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from space.config import Config
from space.devices import DeviceProfile
from space.families.common import WORKSPACE_BYTES
from space.families.cublaslt import BY_RANK, CUBLASLT, MAX_RANKS, NOT_LISTED
from space.families.unlisted import WGMMA_KERNELS, Shapes, expected_order
from space.kinds.gemm import Gemm
from workers.cuda.copies import Copy, Strides
from workers.cuda.driver import Buffer, CudaError, Stream
from workers.cuda.families.algorithms import ATTRIBUTES, Algorithm, Result, alignment_bytes, attributes, rebuilt
from workers.cuda.families.launcher import Launcher, Library
from workers.cuda.families.products import OPERATION_BYTES, TYPES, Matrix, product_of
from workers.cuda.families.shared import Shared

_REFUSED: Final = "CUDA_ERROR_NOT_SUPPORTED"
#: An address as aligned as any; nothing is read there.
_SOMEWHERE: Final = 1 << 20
_POINTER_BYTES: Final = 8
#: How many kernels beyond the heuristic's list the library is asked for at most: it has a third to nearly all of the
#: first hundred.
MOST_ASKED: Final = 1_000


class Handle:
    """A handle of the library on the current device, and its version.

    Raises:
        ImportError, OSError: the library or its bindings are not installed.
    """

    def __init__(self) -> None:
        from nvmath.bindings import cublasLt

        self.lt: Any = cublasLt
        self.handle = cublasLt.create()
        self.version = str(cublasLt.get_version())

    @cached_property
    def workspace(self) -> Buffer:
        """Workspace that all candidates share, one launch after another."""
        return Buffer.allocate(WORKSPACE_BYTES)


def opened(device: int = 0) -> tuple[Handle | None, str]:
    """The handle of this process on a device, which must be current; None and the reason where there is no library."""
    try:
        return _handle(device), ""
    except Exception as error:
        # Not installed, or not loadable here; users see the reason. The next caller tries again: the card may have
        # been full, or the library come since.
        return None, f"cuBLASLt can't be used ({type(error).__name__}: {error})"


@cache
def _handle(device: int) -> Handle:
    return Handle()


def as_measured(config: Config, version: str, device: int) -> tuple[Handle | None, str]:
    """The handle on a device, which must be current, if the library is the one that measured a config; else the reason.

    Args:
        version: of the library that measured it; empty if unknown: the library alone checks the algorithm then.
    """
    library, missing = opened(device)
    if library is None:
        return None, missing
    if version and version != library.version:
        return None, (
            f"{config.key} was measured with cuBLASLt {version}, and {library.version} is loaded here: "
            f"tune again with it"
        )
    return library, ""


def unsupported(problem: Gemm) -> str:
    """Why the library cannot have such a product; empty where it may. The heuristic decides."""
    if missing := {problem.dtype_a, problem.dtype_b, problem.dtype_c} - set(TYPES):
        return f"cuBLASLt has no {', '.join(sorted(missing))}"
    if problem.dtype_acc == "fp16" and {problem.dtype_a, problem.dtype_b, problem.dtype_c} != {"fp16"}:
        return "cuBLASLt has f16 sums of fp16 operands with an fp16 C only"
    if "silu" in problem.epilogue_parts:
        return "cuBLASLt fuses no silu"
    if problem.dtype_c in ("fp8_e4m3", "fp8_e5m2") and problem.epilogue_parts & {"beta", "bias"}:
        return f"cuBLASLt adds nothing of our types to an {problem.dtype_c} output"
    if problem.dtype_acc == "s32" and (problem.dtype_c != "s32" or problem.epilogue_parts):
        return "cuBLASLt scales no s32 sums to our types"
    return ""


class Matmul:
    """The product of one problem, described to the library, whose operands are those of `Product`.

    Args:
        strides: of the operands `a` and `b` whose lines are apart.

    Attributes:
        whole: whether sums are whole numbers, which are not scaled: alpha is 1 and beta 0.

    Raises:
        CudaError: the library refuses to be told of it.
    """

    def __init__(
        self, library: Handle, problem: Gemm, strides: Mapping[str, Strides] = MappingProxyType({})
    ) -> None:
        self._library, self._problem = library, problem
        self.whole = problem.dtype_acc == "s32"
        product = product_of(problem, strides)
        self._types = product.compute, product.scalar, *(each.dtype for each in product.matrices)
        self._operands: list[int] = []
        self._descriptor = library.lt.matmul_desc_create(product.compute, product.scalar)
        try:
            for name, value in product.operation.items():
                self._set(getattr(library.lt.MatmulDescAttribute, name), value, OPERATION_BYTES[name])
            if problem.scales:
                # The heuristic asks whether there are scales, and reads none.
                self.set_scales(_SOMEWHERE, _SOMEWHERE)
            for matrix in product.matrices:
                self._describe(matrix)
        except library.lt.cuBLASLtError as error:
            self.free()
            raise CudaError(f"cuBLASLt takes no such product ({error})", _REFUSED) from error

    @cached_property
    def listed(self) -> tuple[Config, ...]:
        """The heuristic's candidates, its first choice first, each once; empty where the library has no such product.

        A candidate that can't be rebuilt from its attributes is named by its rank.
        """
        configs = (self._config(rank) for rank in range(len(self._results)))
        return tuple(dict.fromkeys(configs))

    def unlisted(self, device: DeviceProfile) -> Iterator[Config]:
        """Kernels that the library accepts though its heuristic doesn't list them, the fastest expected first; none
        where it lists none for Hopper.
        """
        lt = self._library.lt
        like = next((config for config in self.listed if config["algorithm"] == WGMMA_KERNELS), None)
        if like is None:
            return
        order = expected_order(self._problem, device, _shapes(lt.MatmulTile), _shapes(lt.ClusterShape))
        for numbers in islice(order, MOST_ASKED):
            with suppress(CudaError):
                if (config := self._accepted(like.knobs | numbers)) not in self.listed:
                    yield config

    def algorithm(self, config: Config) -> Algorithm:
        """The algorithm of a config, checked by the library.

        Raises:
            CudaError: the library has no such algorithm, or refuses it for this product.
        """
        if config["algorithm"] != BY_RANK:
            return self._rebuilt(config.knobs)
        rank = config.number("rank")
        if rank >= len(self._results):
            raise CudaError(f"cublasLtMatmulAlgoGetHeuristic returns no rank {rank}", "CUDA_ERROR_NOT_FOUND")
        result = self._results[rank]
        return Algorithm(result, alignment_bytes(self._library.lt, result))

    def launch(self, stream: int, copy: Copy, algorithm: Algorithm, workspace: int, alpha: int, beta: int) -> None:
        """Runs an algorithm once. A bias must have been set with `set_bias`.

        Args:
            stream: handle.
            workspace: address of `algorithm.workspace_bytes`.
            alpha, beta: addresses of scalars of the type of `scalar`.

        Raises:
            CudaError: the library refuses it, as it does with some of its own candidates.
        """
        lt = self._library.lt
        first, second, source, output = self._operands
        try:
            lt.matmul(
                self._library.handle, self._descriptor, alpha, copy.b, first, copy.a, second, beta,
                copy.source or copy.c, source, copy.c, output, algorithm.address, workspace,
                algorithm.workspace_bytes, stream,
            )  # fmt: skip
        except lt.cuBLASLtError as error:
            raise CudaError(f"cublasLtMatmul ({error})", _REFUSED) from error

    def set_bias(self, address: int) -> None:
        """Sets the address of the bias for further launches."""
        self._set(self._library.lt.MatmulDescAttribute.BIAS_POINTER, address, _POINTER_BYTES)

    def set_scales(self, a: int, b: int) -> None:
        """Sets the addresses of the f32 scales of A and B for further launches; they are read on the device."""
        kinds = self._library.lt.MatmulDescAttribute
        self._set(kinds.A_SCALE_POINTER, b, _POINTER_BYTES)
        self._set(kinds.B_SCALE_POINTER, a, _POINTER_BYTES)

    def scalar(self, value: float) -> ctypes.c_int32 | ctypes.c_uint16 | ctypes.c_float:
        """Alpha or beta as the library takes it: f16 beside f16 sums. Of whole sums they are only 1 and 0."""
        if self._problem.dtype_acc == "fp16":
            return ctypes.c_uint16(int(np.float16(value).view(np.uint16)))
        return ctypes.c_int32(int(value)) if self.whole else ctypes.c_float(value)

    def note(self, config: Config, algorithm: Algorithm) -> str:
        """The library's description of an algorithm: id, tile, stages, cluster, split-K, rank in the heuristic."""
        lt, of = self._library.lt, attributes(self._library.lt, algorithm.result)
        tile, stages = _name(lt.MatmulTile, of["tile"]), _name(lt.MatmulStages, of["stages"])
        rank = config.number("rank") if config["algorithm"] == BY_RANK else self._rank(config)
        return (
            f"algorithm {of['algorithm']}, tile {tile}, stages {stages}, "
            f"cluster {_name(lt.ClusterShape, of['cluster'])}, split-K {of['split_k']}, "
            + (NOT_LISTED if rank is None else f"rank {rank}")
        )

    def free(self) -> None:
        """Frees the descriptions."""
        lt = self._library.lt
        for layout in self._operands:
            lt.matrix_layout_destroy(layout)
        lt.matmul_desc_destroy(self._descriptor)

    def _set(self, attribute: Any, value: int, size_bytes: int) -> None:  # noqa: ANN401
        held = ctypes.create_string_buffer(value.to_bytes(size_bytes, "little"), size_bytes)
        self._library.lt.matmul_desc_set_attribute(self._descriptor, attribute, ctypes.addressof(held), size_bytes)

    def _describe(self, matrix: Matrix) -> None:
        lt = self._library.lt
        layout = int(lt.matrix_layout_create(matrix.dtype, matrix.rows, matrix.columns, matrix.line))
        self._operands.append(layout)
        if matrix.batch > 1:
            for attribute, value, kind in (
                (lt.MatrixLayoutAttribute.BATCH_COUNT, matrix.batch, np.int32),
                (lt.MatrixLayoutAttribute.STRIDED_BATCH_OFFSET, matrix.matrix, np.int64),
            ):
                held = np.array([value], dtype=kind)
                lt.matrix_layout_set_attribute(layout, attribute, held.ctypes.data, held.nbytes)

    @cached_property
    def _results(self) -> tuple[Result, ...]:
        """The heuristic's list."""
        lt, library = self._library.lt, self._library
        room, count = (Result * MAX_RANKS)(), ctypes.c_int(0)
        with _preference(lt) as preference:
            try:
                lt.matmul_algo_get_heuristic(
                    library.handle, self._descriptor, *self._operands, preference, MAX_RANKS, ctypes.addressof(room),
                    ctypes.addressof(count),
                )  # fmt: skip
            except lt.cuBLASLtError:
                # Not supported is an answer: the library has no candidates.
                return ()
        return tuple(room[: count.value])

    def _config(self, rank: int) -> Config:
        """The attributes of a candidate as a config."""
        try:
            return self._accepted(attributes(self._library.lt, self._results[rank]))
        except CudaError:
            return CUBLASLT.config({"rank": rank})

    def _accepted(self, knobs: Mapping[str, Any]) -> Config:
        return CUBLASLT.config({**knobs, "workspace_bytes": self._rebuilt(knobs).workspace_bytes})

    def _rank(self, config: Config) -> int | None:
        """Where the heuristic lists a config; None if it does not."""
        wanted = {name: config[name] for name in ATTRIBUTES}
        ranks = (rank for rank, result in enumerate(self._results) if attributes(self._library.lt, result) == wanted)
        return next(ranks, None)

    def _rebuilt(self, knobs: Mapping[str, Any]) -> Algorithm:
        lt, handle, checked = self._library.lt, self._library.handle, Result()
        call = f"cublasLtMatmulAlgoCheck of algorithm {knobs['algorithm']}"
        try:
            result = rebuilt(lt, handle, self._types, knobs)
            address = ctypes.addressof(result)
            lt.matmul_algo_check(handle, self._descriptor, *self._operands, address, ctypes.addressof(checked))
        except lt.cuBLASLtError as error:
            raise CudaError(f"{call} ({error})", _REFUSED) from error
        if checked.state or checked.workspace_bytes > WORKSPACE_BYTES:
            said = f"status {checked.state}, {checked.workspace_bytes:,} B of workspace"
            raise CudaError(f"{call} ({said})", _REFUSED)
        result.workspace_bytes = checked.workspace_bytes
        return Algorithm(result, alignment_bytes(lt, result))


class LibraryLauncher(Launcher):
    """An algorithm of the library."""

    def __init__(self, problem: Gemm, config: Config, cubin: bytes, device: DeviceProfile, shared: Shared) -> None:
        handle, missing = opened()
        matmul = _matmul(problem, shared)
        if handle is None or matmul is None:
            reason = missing or unsupported(problem) or "cuBLASLt takes no such product"
            raise CudaError(reason, "CUDA_ERROR_NOT_FOUND")
        self._matmul, self._algorithm = matmul, matmul.algorithm(config)
        self._workspace = handle.workspace.address
        self.note = matmul.note(config, self._algorithm)

    def launch(self, stream: Stream, copy: Copy) -> None:
        """Runs it once.

        Raises:
            CudaError: the library refuses it, as it does with some of its own candidates.
        """
        matmul = self._matmul
        alpha, beta = matmul.scalar(copy.alpha), matmul.scalar(copy.beta)
        if copy.bias:
            matmul.set_bias(copy.bias)
        if copy.scale_a:
            matmul.set_scales(copy.scale_a, copy.scale_b)
        matmul.launch(
            int(stream.handle), copy, self._algorithm, self._workspace, ctypes.addressof(alpha), ctypes.addressof(beta)
        )

    def unload(self) -> None:
        """Frees nothing: all candidates share the description of the product."""

    @classmethod
    def library(cls) -> Library:
        """cuBLASLt's version, or why it can't be used."""
        handle, missing = opened()
        if handle:
            # Allocated before operands take most of the memory.
            assert handle.workspace.address
        return Library(handle.version if handle else "", missing and f"{missing}: no baseline is measured")

    @classmethod
    def candidates(cls, problem: Gemm, shared: Shared) -> tuple[Config, ...]:
        """The heuristic's list, its first choice first; empty where the library has no such product."""
        matmul = _matmul(problem, shared)
        return matmul.listed if matmul else ()

    @classmethod
    def unlisted(cls, problem: Gemm, shared: Shared, device: DeviceProfile) -> Iterator[Config]:
        """What the heuristic could have listed as well, the fastest expected first."""
        matmul = _matmul(problem, shared)
        return matmul.unlisted(device) if matmul else iter(())


def _matmul(problem: Gemm, shared: Shared) -> Matmul | None:
    """The problem's product, described to the library; None where it has no such product."""
    handle, _ = opened()
    if handle is None or unsupported(problem):
        return None
    # A version that lacks an attribute of the product takes no such product either.
    with suppress(CudaError):
        return shared.keep(Matmul, lambda: Matmul(handle, problem))
    return None


@contextmanager
def _preference(lt: Any) -> Iterator[int]:  # noqa: ANN401
    preference = lt.matmul_preference_create()
    try:
        most = np.array([WORKSPACE_BYTES], dtype=np.uint64)
        attribute = lt.MatmulPreferenceAttribute.MAX_WORKSPACE_BYTES
        lt.matmul_preference_set_attribute(preference, attribute, most.ctypes.data, most.nbytes)
        yield preference
    finally:
        lt.matmul_preference_destroy(preference)


@cache
def _shapes(kind: Any) -> Shapes:  # noqa: ANN401
    """Rows and columns of the library's numbers, by their names: `TILE_128x64`, `SHAPE_2x1x1`."""
    sides = {int(member): member.name.partition("_")[2].split("x") for member in kind}
    return {number: (int(of[0]), int(of[1])) for number, of in sides.items() if len(of) > 1}


def _name(kind: Any, number: int) -> str:  # noqa: ANN401
    try:
        return str(kind(number).name).removeprefix("TILE_").removeprefix("STAGES_").removeprefix("SHAPE_").lower()
    except ValueError:
        return str(number)


LAUNCHER: Final = LibraryLauncher
