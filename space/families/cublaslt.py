"""cublaslt: the library that users already have, as a family of candidates.

A candidate is a place in the list that the library's heuristic returns for the problem; 0 is what an
ordinary caller gets. What stands behind a place (tile, stages, cluster) is in the measurement's note.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from space.arch import ARCHS
from space.columns import Columns, FloatColumn
from space.devices import DeviceProfile
from space.family import Family
from space.knobs import Knob

#: How many algorithms are asked of the heuristic.
MOST_RANKS: Final = 8


def _estimate_us(c: Columns, device: DeviceProfile) -> FloatColumn:
    """The roofline bound: nothing more is known of a library kernel before it is measured."""
    moved = c.problem.min_bytes / device.hbm_read_tbs / 1e6
    bound = max(c.problem.flops / device.peak_tflops(c.problem.dtype) / 1e6, moved)
    return np.full(len(c), bound + device.launch_us)


CUBLASLT: Final = Family(
    name="cublaslt",
    targets=frozenset(ARCHS),
    knobs=(Knob("rank", tuple(range(MOST_RANKS)), 0, "launch", "place in the list of cublasLtMatmulAlgoGetHeuristic"),),
    derived=(),
    rules=(),
    estimate_us=_estimate_us,
    own=False,
)
