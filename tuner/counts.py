"""Counts in messages."""

from __future__ import annotations


def counted(count: int, word: str) -> str:
    """`1 problem`, `1,024 problems`."""
    return f"1 {word}" if count == 1 else f"{count:,} {word}s"
