"""Features: numbers that describe a candidate and its problem, derived from the family's own tables.

A candidate's features are its knobs, its derived values, the geometry of its grid, its analytic estimate, and how much
the estimate falls when one of the device's rates is quadrupled, which shows the resource that bounds it. A problem's
features are its extents, its bytes and FLOPs, and its operands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from space.clock import clock_ghz
from space.columns import Columns
from space.devices import DeviceProfile
from space.plug import Family
from space.problem import Problem
from space.rank import roofline_us

Floats = npt.NDArray[np.float64]

#: Factor by which a rate is raised to see whether the estimate depends on it.
RAISED: Final = 4.0


@dataclass(frozen=True)
class Features:
    """A table of features.

    Attributes:
        names: names of the columns: `knob.…`, `derived.…`, `grid.…`, `model.…` and `problem.…`.
        rows: (candidates, features).
        estimate_us: (candidates,), the analytic model's times.
    """

    names: tuple[str, ...]
    rows: Floats
    estimate_us: Floats

    @property
    def of_candidate(self) -> Floats:
        """The columns that may differ between candidates of one problem."""
        return self.rows[:, [not name.startswith("problem.") for name in self.names]]


def features_of(
    family: Family, problem: Problem, columns: Columns, limits: DeviceProfile, estimate_us: Floats | None = None
) -> Features:
    """Features of every row of `columns`.

    Args:
        estimate_us: the family's estimate of each row, if known.
    """
    estimate = np.asarray(family.estimate_us(columns, limits) if estimate_us is None else estimate_us, dtype=np.float64)
    parts: dict[str, Floats | float] = {}
    parts |= _knobs(family, columns) | _derived(family, columns) | _grid(family, problem, columns, limits)
    parts |= _model(family, problem, columns, limits, estimate)
    parts |= {f"problem.{name}": value for name, value in problem_features(problem, limits).items()}
    rows = np.empty((len(columns), len(parts)))
    for place, part in enumerate(parts.values()):
        rows[:, place] = part
    return Features(tuple(parts), rows, estimate)


def problem_features(problem: Problem, limits: DeviceProfile) -> dict[str, float]:
    """A problem as numbers; logarithms are to base 2."""
    sizes = zip(("m", "n", "k", "batch"), (*problem.extents, problem.batch), strict=True)
    extents = {name: float(np.log2(size)) for name, size in sizes}
    return {
        **extents,
        "intensity": float(np.log2(problem.flops / problem.min_bytes)),
        "roofline_us": float(np.log2(roofline_us(problem, limits))),
        "peak": float(np.log2(limits.peak_tflops(problem.dtype))),
        **problem.features(),
    }


def _knobs(family: Family, columns: Columns) -> dict[str, Floats]:
    """Logarithms of numeric knobs; one column for a choice of two words, one column per word for more."""
    found: dict[str, Floats] = {}
    for knob in family.knobs:
        column = columns[knob.name].astype(np.float64)
        if not isinstance(knob.domain[0], str):
            found[f"knob.{knob.name}"] = _log(column)
        elif len(knob.domain) <= 2:
            found[f"knob.{knob.name}"] = column
        else:
            found |= {f"knob.{knob.name}.{word}": (column == knob.encode(word)) * 1.0 for word in knob.domain}
    return found


def _derived(family: Family, columns: Columns) -> dict[str, Floats]:
    return {f"derived.{value.name}": _log(columns[value.name].astype(np.float64)) for value in family.derived}


#: Features of a grid of tiles: name, the knobs and derived values that the feature needs, and its formula.
#: A family that lacks one of those values does not have the feature.
_GRID: Final[dict[str, tuple[tuple[str, ...], Callable[[dict[str, Floats], Problem, DeviceProfile], Floats]]]] = {
    "waves": (("tiles_m", "tiles_n", "cluster_size"), lambda c, p, d: _log(_waves(c, d))),
    "fill": (("tiles_m", "tiles_n", "cluster_size"),
             lambda c, p, d: c["tiles_m"] * c["tiles_n"] * c["cluster_size"] / (_waves(c, d) * d.sm_count)),
    "padding": (("tiles_m", "tiles_n", "tile_m", "tile_n", "cluster_m", "cluster_n"),
                lambda c, p, d: np.log(c["tiles_m"] * c["tile_m"] * c["cluster_m"] / p.extents[0]
                                       * (c["tiles_n"] * c["tile_n"] * c["cluster_n"] / p.extents[1]))),
    "area": (("tile_m", "tile_n"), lambda c, p, d: _log(c["tile_m"] * c["tile_n"])),
    "aspect": (("tile_m", "tile_n"), lambda c, p, d: np.log2(c["tile_m"] / c["tile_n"])),
    "reuse": (("tile_m", "tile_n", "cluster_m", "cluster_n"),
              lambda c, p, d: -np.log2(1 / (c["tile_m"] * c["cluster_m"]) + 1 / (c["tile_n"] * c["cluster_n"]))),
}  # fmt: skip


def _grid(family: Family, problem: Problem, columns: Columns, limits: DeviceProfile) -> dict[str, Floats]:
    known = {knob.name for knob in family.knobs} | {value.name for value in family.derived}
    return {
        f"grid.{name}": compute({read: columns[read].astype(np.float64) for read in reads}, problem, limits)
        for name, (reads, compute) in _GRID.items()
        if known.issuperset(reads)
    }


def _waves(c: dict[str, Floats], limits: DeviceProfile) -> Floats:
    slots = limits.cluster_slots(c["cluster_size"].astype(np.int64))
    return np.asarray(np.ceil(c["tiles_m"] * c["tiles_n"] / slots), dtype=np.float64)


def _model(
    family: Family, problem: Problem, columns: Columns, limits: DeviceProfile, estimate: Floats
) -> dict[str, Floats]:
    """Logarithms of estimate / roofline, and of estimate / estimate with one rate raised."""
    # Changes one rate at a time: the clock stays at the value at which the problem runs.
    clock = clock_ghz(problem, limits)
    fixed = replace(limits, clock_ghz=clock, highest_clock_ghz=clock)
    raised = {
        "tensor": replace(fixed, tensor_tflops={dtype: RAISED * v for dtype, v in limits.tensor_tflops.items()}),
        "hbm": replace(fixed, hbm_tbs=RAISED * limits.hbm_tbs),
        "l2": replace(fixed, l2_tbs=RAISED * limits.l2_tbs),
        "clock": replace(fixed, clock_ghz=RAISED * clock, highest_clock_ghz=RAISED * clock),
    }
    found = {"model.estimate": np.log(estimate / roofline_us(problem, limits))}
    for name, faster in raised.items():
        found[f"model.{name}"] = np.log(estimate / family.estimate_us(columns, faster))
    return found


def _log(column: Floats) -> Floats:
    return np.asarray(np.log2(np.maximum(column, 0) + 1), dtype=np.float64)
