"""Elements, registers and images of shared memory as words, and numbers as digits that every dtype represents."""

from __future__ import annotations

import numpy as np

from space.layouts.fragments.fragment import Fragment
from space.layouts.swizzle import IntArray

#: Exponent bias and mantissa bits of fp8 (OCP 8-bit floating point specification).
_MINIFLOAT = {"fp8_e4m3": (7, 3), "fp8_e5m2": (15, 2)}


def base_of(dtype: str) -> int:
    """Digits 0 to 7 are exact in every dtype but the one-bit one."""
    return 2 if dtype == "b1" else 8


def digits(codes: IntArray, base: int, largest: int) -> list[IntArray]:
    """`codes` digit by digit, lowest first, as many as `largest` needs."""
    made = []
    while largest:
        made.append(codes % base)
        codes, largest = codes // base, largest // base
    return made


def number(parts: list[IntArray], base: int) -> IntArray:
    """The inverse of `digits`."""
    return sum((part * base**place for place, part in enumerate(parts)), np.zeros_like(parts[0]))


def element_words(values: IntArray, dtype: str) -> IntArray:
    """Bit patterns of small whole numbers."""
    if dtype in ("bf16", "tf32", "f32"):
        bits = values.astype(np.float32).view(np.uint32).astype(np.int64)
        return bits >> 16 if dtype == "bf16" else bits
    if dtype == "fp16":
        return values.astype(np.float16).view(np.uint16).astype(np.int64)
    if dtype == "f64":
        return values.astype(np.float64).view(np.int64)
    if dtype in _MINIFLOAT:
        bias, mantissa = _MINIFLOAT[dtype]
        exponent = np.frexp(values.astype(np.float64))[1].astype(np.int64) - 1
        fraction = (values << mantissa >> np.maximum(exponent, 0)) - (1 << mantissa)
        return np.where(values == 0, 0, (exponent + bias << mantissa) + fraction)
    return values


def register_words(fragment: Fragment, values: IntArray, dtype: str) -> np.ndarray:
    """Values [threads, elements] as 32-bit words [threads, words]."""
    packed = fragment.elements_per_register
    bits = element_words(values, dtype).astype(np.uint64).reshape(fragment.threads, -1, packed)
    places = (np.arange(packed) * fragment.element_bits).astype(np.uint64)
    registers = np.bitwise_or.reduce(bits << places, axis=2)
    if fragment.register_bits == 64:
        return np.ascontiguousarray(registers).view(np.uint32)
    return registers.astype(np.uint32)


def register_values(fragment: Fragment, words: np.ndarray, dtype: str) -> IntArray:
    """Accumulator words [..., threads, words] as whole numbers [..., threads, elements].

    Raises:
        ValueError: a value is no whole number.
    """
    raw = np.ascontiguousarray(words)
    kind = {"f32": np.float32, "f64": np.float64, "fp16": np.float16, "s32": np.int32}[dtype]
    values = raw.view(kind)
    wrong = values[~np.isfinite(values) | (values != np.rint(values))]
    if wrong.size:
        raise ValueError(f"{fragment.name}: {wrong[:4]} is no whole number")
    return values.astype(np.int64)


def spread(fragment: Fragment, matrix: IntArray) -> IntArray:
    """Each thread's elements [threads, elements] of a matrix [rows, columns] or of several [matrix, …]."""
    several = matrix if matrix.ndim == 3 else np.broadcast_to(matrix, (fragment.matrices, *matrix.shape))
    return several[fragment.matrix, fragment.row, fragment.column]


def gather(fragment: Fragment, values: IntArray) -> IntArray:
    """Matrices [..., matrix, row, column] from the threads' elements [..., threads, elements]."""
    thread, element = fragment.owners()
    return values[..., thread, element]


def codes_of(fragment: Fragment) -> IntArray:
    """A number for each (thread, element)."""
    return np.arange(fragment.threads * fragment.elements, dtype=np.int64).reshape(fragment.threads, -1)


def image_words(elements: IntArray, size_bytes: int, dtype: str) -> np.ndarray:
    """Elements of shared memory in their order as 32-bit words."""
    kind = {1: np.uint8, 2: np.uint16, 4: np.uint32}[size_bytes]
    return np.ascontiguousarray(element_words(elements, dtype).astype(kind)).view(np.uint32)
