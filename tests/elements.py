"""Elements of every dtype, and products of them, by NumPy alone."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from space.kinds.gemm import Gemm
from space.problem import DTYPE_BYTES

#: Reads elements at (address, count, dtype).
Read = Callable[[int, int, str], np.ndarray]

_KINDS = {"fp16": np.float16, "f64": np.float64, "s32": np.int32, "int8": np.int8, "uint8": np.uint8}


def size_bytes(count: int, dtype: str) -> int:
    """Bytes of `count` elements; references use `f64`."""
    return count * (8 if dtype == "f64" else DTYPE_BYTES[dtype])


def numbers(address: int, count: int, dtype: str) -> np.ndarray:
    """Elements in host memory as float64."""
    return decoded(np.frombuffer(ctypes.string_at(address, size_bytes(count, dtype)), np.uint8), dtype)


def decoded(raw: np.ndarray, dtype: str) -> np.ndarray:
    """Decodes elements to float64, with NumPy's type if there is one, else arithmetically."""
    if dtype == "bf16":
        return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if dtype.startswith("fp8"):
        mantissa_bits, bias = (3, 7) if dtype == "fp8_e4m3" else (2, 15)
        exponent, mantissa = raw >> mantissa_bits & (0x7F >> mantissa_bits), raw % 2**mantissa_bits / 2**mantissa_bits
        scale = 2.0 ** (np.maximum(exponent, 1).astype(int) - bias)
        return np.where(raw >= 128, -1, 1) * scale * (mantissa + (exponent > 0))
    if dtype == "tf32":
        return (raw.view(np.uint32) & ~np.uint32(0x1FFF)).view(np.float32).astype(np.float64)
    return raw.view(_KINDS.get(dtype, np.float32)).astype(np.float64)


def product(problem: Gemm, copy: Any, read: Read = numbers) -> np.ndarray:  # noqa: ANN401
    """C before rounding, by NumPy in float64."""
    m, n, k, batch, parts = problem.m, problem.n, problem.k, problem.batch, problem.epilogue_parts
    a, b = read(copy.a, m * k * batch, problem.dtype_a), read(copy.b, n * k * batch, problem.dtype_b)
    a = a.reshape(batch, k, m).swapaxes(1, 2) if problem.layout[0] == "t" else a.reshape(batch, m, k)
    b = b.reshape(batch, k, n) if problem.layout[1] == "n" else b.reshape(batch, n, k).swapaxes(1, 2)
    c = copy.alpha * (a @ b)
    if problem.scales:
        rows, columns = (m, n) if problem.scales == "scaled_rowwise" else (1, 1)
        c = c * read(copy.scale_a, rows, "f32")[:, None] * read(copy.scale_b, columns, "f32")
    if "beta" in parts:
        c = c + copy.beta * read(copy.source, c.size, problem.dtype_c).reshape(c.shape)
    if "bias" in parts:
        c = c + read(copy.bias, n, problem.dtype_bias)
    if "relu" in parts:
        c = np.maximum(c, 0)
    if "gelu" in parts:
        c = 0.5 * c * np.vectorize(math.erfc)(-c / np.sqrt(2))
    return c / (1 + np.exp(-c)) if "silu" in parts else c


def encoded(values: np.ndarray, dtype: str) -> np.ndarray:
    """Encodes numbers as their nearest elements; integers saturate, floats overflow to infinity."""
    if dtype == "bf16":
        words = values.astype(np.float32).view(np.uint32)
        return ((words + 0x7FFF + (words >> 16 & 1)) >> 16).astype(np.uint16).view(np.uint8).reshape(-1)
    if dtype == "tf32":
        words = values.astype(np.float32).view(np.uint32)
        return ((words + 0xFFF + (words >> 13 & 1)) & ~np.uint32(0x1FFF)).view(np.uint8).reshape(-1)
    if dtype.startswith("fp8"):
        codes = np.arange(256, dtype=np.uint8)
        known = numbers(codes.ctypes.data, 256, dtype)
        known[np.abs(known) > (448 if dtype == "fp8_e4m3" else 57_344)] = np.inf
        return np.argmin(np.abs(values.reshape(-1, 1) - known), axis=1).astype(np.uint8)
    kind = _KINDS.get(dtype, np.float32)
    if np.issubdtype(kind, np.integer):
        limits = np.iinfo(kind)
        values = np.clip(np.rint(values), limits.min, limits.max)
    with np.errstate(over="ignore"):
        return values.astype(kind).view(np.uint8).reshape(-1)
