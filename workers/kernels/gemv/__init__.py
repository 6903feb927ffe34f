"""Kernel source of family `gemv`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from workers.kernels.source import Constants, KernelSource

#: In the place of `ptx/griddepcontrol.cuh` on targets without the instruction, where no launch is a dependent one.
_NOTHING_TO_WAIT_FOR: Final = """
__device__ __forceinline__ void griddepcontrol_wait() {}
__device__ __forceinline__ void griddepcontrol_launch_dependents() {}
"""


def _generated(constants: Constants) -> Mapping[str, str]:
    return {} if constants["griddepcontrol"] else {"ptx/griddepcontrol.cuh": _NOTHING_TO_WAIT_FOR}


SOURCE: Final = KernelSource(
    "gemv/entry.cuh",
    enumerators={
        "a_path": "APath", "element_a": "Input", "element_b": "Input", "output": "Output", "activation": "Activation",
    },
    # Chooses the text above; the text for targets with the instruction stays what was measured.
    not_members=frozenset({"griddepcontrol"}),
    generate=_generated,
)  # fmt: skip
