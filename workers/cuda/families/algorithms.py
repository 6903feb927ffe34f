"""Algorithms of cuBLASLt as plain attributes: how they are read, and how an algorithm is rebuilt from them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from space.kinds.gemm import Gemm
from workers.cuda.copies import element_bytes

#: Knobs that are attributes of an algorithm: name in cublasLtMatmulAlgoConfigAttributes_t, and type.
ATTRIBUTES: Final[Mapping[str, tuple[str, Any]]] = {
    "algorithm": ("ID", ctypes.c_int32), "tile": ("TILE_ID", ctypes.c_uint32),
    "stages": ("STAGES_ID", ctypes.c_uint32), "split_k": ("SPLITK_NUM", ctypes.c_int32),
    "reduction": ("REDUCTION_SCHEME", ctypes.c_uint32), "swizzle": ("CTA_SWIZZLING", ctypes.c_uint32),
    "custom": ("CUSTOM_OPTION", ctypes.c_uint32), "inner_shape": ("INNER_SHAPE_ID", ctypes.c_uint16),
    "cluster": ("CLUSTER_SHAPE_ID", ctypes.c_uint16),
}  # fmt: skip
#: Our operands, by the name under which the library says their alignment: it takes B first.
_ALIGNMENTS: Final = {
    "a": "MIN_ALIGNMENT_B_BYTES", "b": "MIN_ALIGNMENT_A_BYTES", "source": "MIN_ALIGNMENT_C_BYTES",
    "c": "MIN_ALIGNMENT_D_BYTES",
}  # fmt: skip
#: Alignment of operands where the library says none: that of TMA and of the widest loads.
USUAL_ALIGNMENT_BYTES: Final = 16


class Result(ctypes.Structure):
    """cublasLt.h: cublasLtMatmulHeuristicResult_t, which begins with a cublasLtMatmulAlgo_t."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8), ("workspace_bytes", ctypes.c_size_t), ("state", ctypes.c_int),
        ("waves", ctypes.c_float), ("reserved", ctypes.c_int * 4),
    )  # fmt: skip


def least_alignment_bytes(problem: Gemm) -> dict[str, int]:
    """What addresses of a product must be multiples of, whatever its algorithm, by the names of `Copy`."""
    # The library says nothing of vectors: kernels of it that read them by its widest loads fault on other addresses.
    vectors = [*(("scale_a", "scale_b") if problem.scales == "scaled_rowwise" else ()),
               *(("bias",) if "bias" in problem.epilogue_parts else ())]  # fmt: skip
    return element_bytes(problem) | dict.fromkeys(vectors, USUAL_ALIGNMENT_BYTES)


@dataclass(frozen=True, slots=True)
class Algorithm:
    """An algorithm of the library for one product.

    Attributes:
        result: the algorithm itself and what the library said when it checked it.
        alignment_bytes: what addresses must be multiples of, by operand.
    """

    result: Result
    alignment_bytes: Mapping[str, int]

    @property
    def address(self) -> int:
        return ctypes.addressof(self.result)

    @property
    def workspace_bytes(self) -> int:
        return int(self.result.workspace_bytes)


def attributes(lt: Any, result: Result) -> dict[str, int]:  # noqa: ANN401
    """The knobs of an algorithm; 0 for an attribute that it does not have.

    Args:
        lt: `nvmath.bindings.cublasLt`.
    """
    kinds, found = lt.MatmulAlgoConfigAttribute, {}
    for knob, (name, kind) in ATTRIBUTES.items():
        held = kind(0)
        with suppress(lt.cuBLASLtError):
            _read(lt.matmul_algo_config_get_attribute, result, getattr(kinds, name), held)
        found[knob] = int(held.value)
    return found


def alignment_bytes(lt: Any, result: Result) -> dict[str, int]:  # noqa: ANN401
    """What addresses of an algorithm's operands must be multiples of."""
    kinds, found = lt.MatmulAlgoCapAttribute, {}
    for operand, name in _ALIGNMENTS.items():
        held = ctypes.c_uint32(0)
        with suppress(lt.cuBLASLtError):
            _read(lt.matmul_algo_cap_get_attribute, result, getattr(kinds, name), held)
        found[operand] = held.value or USUAL_ALIGNMENT_BYTES
    return found


def rebuilt(lt: Any, handle: int, types: tuple[int, ...], knobs: Mapping[str, Any]) -> Result:  # noqa: ANN401
    """An algorithm made from its attributes, which the library has not checked yet.

    Args:
        types: of computation, scale, and the library's A, B, C and D.
        knobs: all of `ATTRIBUTES`.

    Raises:
        cuBLASLtError: this library has no such algorithm, or it refuses an attribute.
    """
    result = Result()
    address = ctypes.addressof(result)
    lt.matmul_algo_init(handle, *types, knobs["algorithm"], address)
    usual = attributes(lt, result)
    for knob, (name, kind) in ATTRIBUTES.items():
        # An algorithm without an attribute refuses to be given it, even the only value that it has.
        if knobs[knob] != usual[knob]:
            held = kind(knobs[knob])
            attribute = getattr(lt.MatmulAlgoConfigAttribute, name)
            lt.matmul_algo_config_set_attribute(address, attribute, ctypes.addressof(held), ctypes.sizeof(held))
    return result


def _read(get: Any, result: Result, attribute: Any, held: Any) -> None:  # noqa: ANN401
    written = ctypes.c_size_t(0)
    get(ctypes.addressof(result), attribute, ctypes.addressof(held), ctypes.sizeof(held), ctypes.addressof(written))
