"""Kernel source of family `toy_simt`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from workers.kernels.source import KernelSource

SOURCE: Final = KernelSource(
    "toy_simt/entry.cuh",
    root=Path(__file__).parent,
    enumerators={"input": "ToyInput", "output": "Output", "activation": "Activation"},
)
