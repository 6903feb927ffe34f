"""Programmatic dependent launch: which problems are short enough for it to be worth trying, in any family."""

from __future__ import annotations

from typing import Final

import numpy as np

from space.columns import FloatColumn
from space.kinds.gemm import Gemm

#: Some thirty microseconds of memory, and four hundred of 16-bit products, on a Hopper GPU.
SHORT_BYTES, SHORT_FLOPS = 128_000_000, 256_000_000_000
#: What setting up beside the end of the kernel before saves.
SAVES_US: Final = 0.5
#: What it costs, as a share of the kernel's time, where a little more than half of what the device holds is one launch:
#: the blocks that find no room beside the kernel before crowd where its first blocks end. Nothing from so large a share
#: on. Of the recordings' pairs that differ in this knob alone, 1,118 of smaller launches gain 0.5 us, and 813 of those
#: between half and three quarters lose 1.0 us (medians), up to two fifths of their time.
CROWDED, CROWDED_UNTIL = 0.3, 0.75
SENTENCE: Final = "programmatic dependent launch only for short products"
WHY: Final = (
    "it hides half a microsecond of setting up at most, behind a kernel that lets it; among copies of itself each does"
)


def is_short(problem: Gemm) -> bool:
    """Whether half a microsecond is a share of a product's time that can be measured."""
    return problem.min_bytes <= SHORT_BYTES and problem.flops <= SHORT_FLOPS


def saved_us(held: FloatColumn, kernel_us: FloatColumn) -> FloatColumn:
    """What it saves among copies of itself; negative where it costs.

    Args:
        held: blocks of one launch, as a share of those that the device holds at once.
        kernel_us: what a launch takes.
    """
    crowded = np.where(held > 0.5, np.maximum((CROWDED_UNTIL - held) / (CROWDED_UNTIL - 0.5), 0), 0)
    saved: FloatColumn = SAVES_US - CROWDED * crowded * kernel_us
    return saved
