"""Kernel source of family `gemv`."""

from __future__ import annotations

from typing import Final

from workers.kernels.source import KernelSource

SOURCE: Final = KernelSource(
    "gemv/entry.cuh",
    enumerators={
        "a_path": "APath", "element_a": "Input", "element_b": "Input", "output": "Output", "activation": "Activation",
    },
)  # fmt: skip
