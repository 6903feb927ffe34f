"""`setmaxnreg`: moves registers between the warpgroups of a block while they run."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

#: Registers a thread that the instruction takes, and their step.
MIN_REGISTERS, MAX_REGISTERS, STEP = 24, 256, 8
SOURCE: Final = "PTX ISA 9.0, setmaxnreg"


def settable(registers: npt.NDArray[np.int64], addressable: int) -> npt.NDArray[np.int64]:
    """The largest count that the instruction takes within `registers` and within what a thread can address."""
    steps: npt.NDArray[np.int64] = np.minimum(registers // STEP, min(addressable, MAX_REGISTERS) // STEP)
    return steps * STEP
