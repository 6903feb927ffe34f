"""A kernel that moves a product's bytes and multiplies nothing: a bound on all that read A and B from memory."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from workers.kernels.source import KernelSource

SOURCE: Final = KernelSource("floor/entry.cuh", root=Path(__file__).parents[1])
