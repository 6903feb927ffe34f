"""Programmatic dependent launch: for which problems it is worth trying, and what it saves."""

from __future__ import annotations

from typing import Final

import numpy as np

from space.columns import FloatColumn
from space.kinds.gemm import Gemm

#: Limits of a short product: about 30 us of memory traffic and 400 us of 16-bit arithmetic on a Hopper GPU.
SHORT_BYTES, SHORT_FLOPS = 128_000_000, 256_000_000_000
#: Microseconds that setting up during the end of the previous kernel saves.
SAVES_US: Final = 0.5
#: Cost as a share of the kernel's time if a launch fills just over half of the device: blocks that find no room beside
#: the previous kernel crowd where its first blocks end. The cost falls to nothing at the second number. Of the recorded
#: pairs that differ only in this knob, 1,118 of smaller launches gain 0.5 us; 813 that fill between half and three
#: quarters of the device lose 1.0 us (medians), at most two fifths of their time.
CROWDED, CROWDED_UNTIL = 0.3, 0.75
SENTENCE: Final = "programmatic dependent launch is used only for short products"
WHY: Final = (
    "it hides at most 0.5 us of setup, and only behind a kernel that allows it, as every copy of the kernel itself does"
)


def is_short(problem: Gemm) -> bool:
    """Whether half a microsecond is a measurable share of the time of a product."""
    return problem.min_bytes <= SHORT_BYTES and problem.flops <= SHORT_FLOPS


def saved_us(held: FloatColumn, kernel_us: FloatColumn) -> FloatColumn:
    """Microseconds that it saves a kernel launched behind a copy of itself; negative if it costs time.

    Args:
        held: blocks of one launch, as a share of the blocks that the device holds at once.
        kernel_us: time of one launch.
    """
    crowded = np.where(held > 0.5, np.maximum((CROWDED_UNTIL - held) / (CROWDED_UNTIL - 0.5), 0), 0)
    saved: FloatColumn = SAVES_US - CROWDED * crowded * kernel_us
    return saved
