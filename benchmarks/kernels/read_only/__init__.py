"""A kernel that only reads: the lower bound on the time of every kernel that reads the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from workers.kernels.source import KernelSource

SOURCE: Final = KernelSource("read_only/entry.cuh", root=Path(__file__).parents[1])
