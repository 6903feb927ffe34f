"""The kernels around a measurement: operands, poison, the reference, and the comparison of every element."""

from __future__ import annotations

from typing import Final

from workers.kernels.source import KernelSource

SOURCE: Final = KernelSource("verify/entry.cuh")
