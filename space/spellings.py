"""Spellings of other tools for our words, for messages: none of them is accepted."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

#: Dtypes of PyTorch, vLLM and CUTLASS, in small letters.
_DTYPES: Final = {
    "bfloat16": "bf16",
    "float16": "fp16", "half": "fp16", "f16": "fp16",
    "float32": "f32", "float": "f32", "fp32": "f32",
    "fp8": "fp8_e4m3", "float8_e4m3fn": "fp8_e4m3", "float8_e4m3": "fp8_e4m3", "fp8_e4m3fn": "fp8_e4m3",
    "e4m3": "fp8_e4m3", "e4m3fn": "fp8_e4m3",
    "float8_e5m2": "fp8_e5m2", "e5m2": "fp8_e5m2",
    "s8": "int8", "i8": "int8", "u8": "uint8", "int32": "s32", "i32": "s32",
}  # fmt: skip


def hint(word: str, allowed: Collection[str]) -> str:
    """The end of a message that refuses a word: which of the allowed ones it spells; empty where it spells none."""
    plain = word.strip().lower().removeprefix("torch.")
    meant = _DTYPES.get(plain, plain)
    if meant in allowed:
        return f"; did you mean {meant}?"
    return "; tf32 is f32 in memory" if meant == "f32" and "tf32" in allowed else ""
