"""cublaslt: the library that users already have, as a family of candidates.

A config is an algorithm of the library: the attributes from which the same version of it rebuilds the algorithm. The
library's heuristic lists the candidates for a problem; ordinary callers get its first choice. Configs from before the
attributes were kept name only a rank in that list.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from space.arch import ARCHS
from space.columns import Columns, FloatColumn
from space.devices import DeviceProfile
from space.families.common import WORKSPACE_BYTES
from space.knobs import Knob
from space.plug import Family

#: Algorithms requested from the heuristic.
MAX_RANKS: Final = 16
#: What the note of a measurement says of an algorithm that the heuristic doesn't list for the problem.
NOT_LISTED: Final = "not in the heuristic's list"
#: Value of `algorithm` in a config that names only a rank.
BY_RANK: Final = -1
_I32, _U32, _U16 = range(-(2**31), 2**31), range(2**32), range(2**16)


def _estimate_us(c: Columns, device: DeviceProfile) -> FloatColumn:
    """The roofline bound: the list says no more about a library kernel before it is measured."""
    moved = c.problem.min_bytes / device.hbm_read_tbs / 1e6
    bound = max(c.problem.flops / device.peak_tflops(c.problem.dtype) / 1e6, moved)
    return np.full(len(c), bound + device.launch_us)


def _launch(name: str, domain: range, default: int, meaning: str) -> Knob:
    return Knob(name, domain, default, "launch", meaning)


#: Attributes are cublasLtMatmulAlgoConfigAttributes_t; their types are those of the cuBLAS documentation.
_KNOBS: Final = (
    _launch("rank", range(MAX_RANKS), 0,
            "rank in the list of cublasLtMatmulAlgoGetHeuristic if algorithm is -1, else unused"),
    _launch("algorithm", range(BY_RANK, 2**31), BY_RANK,
            "CUBLASLT_ALGO_CONFIG_ID; -1: the algorithm that the heuristic returns at `rank`"),
    _launch("tile", _U32, 0, "CUBLASLT_ALGO_CONFIG_TILE_ID, a cublasLtMatmulTile_t"),
    _launch("stages", _U32, 0, "CUBLASLT_ALGO_CONFIG_STAGES_ID, a cublasLtMatmulStages_t"),
    _launch("split_k", _I32, 0, "CUBLASLT_ALGO_CONFIG_SPLITK_NUM, parts of K; -1 in some algorithms"),
    _launch("reduction", _U32, 0, "CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, a cublasLtReductionScheme_t"),
    _launch("swizzle", _U32, 0, "CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, whether the order of tiles is swizzled"),
    _launch("custom", _U32, 0, "CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION"),
    _launch("inner_shape", _U16, 0, "CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, a cublasLtMatmulInnerShape_t"),
    _launch("cluster", _U16, 0, "CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, a cublasLtClusterShape_t"),
    _launch("workspace_bytes", range(WORKSPACE_BYTES + 1), 0, "workspace that the algorithm needs, in bytes"),
)  # fmt: skip

CUBLASLT: Final = Family(
    name="cublaslt",
    targets=frozenset(ARCHS),
    knobs=_KNOBS,
    derived=(),
    rules=(),
    estimate_us=_estimate_us,
    own=False,
    together=tuple(knob.name for knob in _KNOBS if knob.name != "rank"),
)
