"""Parses the problems that benchmarks take: on the command line, and from lists like `benchmarks/problems/dev.json`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from space.kinds.gemm import Gemm


def problem_of(text: str) -> Gemm:
    """The problem of `DTYPE:MxNxK`, with layout `nt` like a Linear's weight."""
    dtype, _, shape = text.partition(":")
    return Gemm.parse(shape, dtype)


def named_problems(path: Path) -> Iterator[tuple[str, str, Gemm]]:
    """Name, class and problem of each entry of a list."""
    for entry in json.loads(path.read_text()):
        yield entry["name"], entry["class"], problem_of_entry(entry)


def problem_of_entry(entry: Mapping[str, str | int]) -> Gemm:
    """The problem of one entry of a list, which may name a batch and an epilogue."""
    return Gemm.of(
        int(entry["m"]), int(entry["n"]), int(entry["k"]), str(entry["dtype"]), str(entry["layout"]),
        int(entry.get("batch", 1)), str(entry.get("epilogue", "none")),
    )  # fmt: skip
