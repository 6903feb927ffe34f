"""cublaslt: the library that users already have, as a family of candidates.

A candidate is a rank in the list that the library's heuristic returns for a problem; ordinary callers get rank 0. The
note of a measurement names the algorithm behind a rank: tile, stages, cluster.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from space.arch import ARCHS
from space.columns import Columns, FloatColumn
from space.devices import DeviceProfile
from space.family import Family
from space.knobs import Knob

#: Algorithms requested from the heuristic.
MAX_RANKS: Final = 8


def _estimate_us(c: Columns, device: DeviceProfile) -> FloatColumn:
    """The roofline bound: the list says no more about a library kernel before it is measured."""
    moved = c.problem.min_bytes / device.hbm_read_tbs / 1e6
    bound = max(c.problem.flops / device.peak_tflops(c.problem.dtype) / 1e6, moved)
    return np.full(len(c), bound + device.launch_us)


CUBLASLT: Final = Family(
    name="cublaslt",
    targets=frozenset(ARCHS),
    knobs=(Knob("rank", tuple(range(MAX_RANKS)), 0, "launch", "rank in the list of cublasLtMatmulAlgoGetHeuristic"),),
    derived=(),
    rules=(),
    estimate_us=_estimate_us,
    own=False,
)
