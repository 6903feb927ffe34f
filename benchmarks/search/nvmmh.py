"""nvMatmulHeuristics' list, requested in a child process, because its wheel crashes when its objects are deleted.

Optional and proprietary: `pip install nvidia-matmul-heuristics`. Needs no GPU.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from typing import Any, Final

from benchmarks.search.nearest import nearest_order
from benchmarks.search.replay import Replay
from benchmarks.search.setting import Setting
from space.kinds.gemm import Gemm
from space.knobs import KnobValue

#: Distinct configs to measure, as in the published figure.
TOP: Final = 16
#: Its precision letters by our dtypes: A and B, accumulator, C and D.
PRECISIONS: Final = {
    "bf16": "TST", "fp16": "HSH", "tf32": "SFS", "fp8_e4m3": "QQTST", "fp8_e5m2": "RQTST", "int8": "BII"
}  # fmt: skip
#: Its layouts are column-major: our row-major A[M,K] · B[N,K] is its TN.
LAYOUTS: Final = {"nt": "TN_COL_MAJOR", "nn": "NN_COL_MAJOR", "tn": "NT_COL_MAJOR", "tt": "TT_COL_MAJOR"}

_CHILD: Final = """
import json, os, sys
import nvMatmulHeuristics as heuristics
m, n, k, batch, layout, precision, count = json.loads(sys.argv[1])
layout = heuristics.NvMatmulHeuristicsMatmulLayout[layout]
asked = heuristics.NvMatmulHeuristicsInterfaceEx(
    backend=heuristics.NvMatmulHeuristicsTarget.CUTLASS3,
    flags=heuristics.NvMatmulHeuristicsFlags.PERF_MODEL_BASED_AUTO_TUNING,
    gpu=heuristics.NvMatmulHeuristicsNvidiaGpu.H200_SXM,
)
asked.loadInternalDiscoverySet(layout, precision)
problem = asked.makeNvMatmulHeuristicsProblem(m, n, k, layout, batch)
found = asked.get(problem, count, precision=precision)
print(json.dumps([vars(entry["kernel"]) for entry in sorted(found, key=lambda entry: entry["runtime"])]))
sys.stdout.flush()
os._exit(0)
"""


class Unavailable(Exception):
    """The wheel is not installed or does not answer."""


def nvmmh_order(replay: Replay, setting: Setting, seed: int, most: int) -> list[int]:
    """Its first `TOP` distinct configs as the nearest recorded candidates."""
    wishes = [_wish(kernel) for kernel in asked(replay.problem)]
    distinct = [dict(pairs) for pairs in dict.fromkeys(tuple(wish.items()) for wish in wishes)]
    return nearest_order(replay, setting.family, distinct[:TOP], most)


@cache
def asked(problem: Gemm) -> list[dict[str, Any]]:
    """Its kernels for a problem, best estimate first.

    Raises:
        Unavailable: the wheel is not installed, crashed, or does not support the problem.
    """
    if problem.dtype not in PRECISIONS:
        raise Unavailable(f"nvMatmulHeuristics has no precision for {problem.dtype}")
    question = json.dumps(
        [problem.m, problem.n, problem.k, problem.batch, LAYOUTS[problem.layout], PRECISIONS[problem.dtype], 4 * TOP]
    )
    done = subprocess.run([sys.executable, "-c", _CHILD, question], capture_output=True, text=True, check=False)
    if done.returncode or not done.stdout.strip():
        reason = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise Unavailable(f"nvMatmulHeuristics does not answer ({reason}): pip install nvidia-matmul-heuristics")
    kernels: list[dict[str, Any]] = json.loads(done.stdout)
    return kernels


def _wish(kernel: dict[str, Any]) -> dict[str, KnobValue]:
    names = {"tile_m": "cta_tile_m", "tile_n": "cta_tile_n", "tile_k": "cta_tile_k", "stages": "stages",
             "cluster_m": "cluster_m", "cluster_n": "cluster_n", "split_k": "split_k",
             "raster_group": "swizzle_factor"}  # fmt: skip
    wish: dict[str, KnobValue] = {ours: int(kernel[theirs]) for ours, theirs in names.items()}
    return wish | {"swap_ab": 0}
