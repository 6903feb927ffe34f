"""A kernel that only multiplies: the upper bound on the rate of every kernel of the same instruction."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from workers.kernels.source import KernelSource

SOURCE: Final = KernelSource(
    "mma_rate/entry.cuh", root=Path(__file__).parents[1], enumerators={"input_a": "Input", "input_b": "Input"}
)
