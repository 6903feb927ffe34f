"""Facts of problems, computed for thousands at once: an object for each would take 20 µs."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from space.devices import DeviceProfile
from space.errors import SpaceError
from space.kind import problem_from_key
from space.kinds.gemm import Gemm
from space.problem import Problem
from tuner.views.shapes import shape_classes

Columns = dict[str, npt.NDArray[Any]]

#: Operations and bytes of larger products don't fit into an int64: no GPU has done one within an hour.
_MOST: Final = 2**62


@dataclass(frozen=True, slots=True)
class Group:
    """Problems that differ in their extents alone.

    Attributes:
        around: fields other than the extents.
        extents: names of those of M, N and K that are fields.
    """

    kind: str
    dtype: str
    around: dict[str, int | str]
    extents: tuple[str, ...]

    def fields(self, m: int, n: int, k: int) -> dict[str, int | str]:
        """The fields of the problem with these extents, as `Problem.fields`."""
        sizes = {"m": m, "n": n, "k": k}
        return {name: sizes[name] for name in self.extents} | self.around


@dataclass(frozen=True, slots=True)
class _Plain:
    """A `Gemm`'s operations and bytes as functions of its extents."""

    group: int
    flops: int
    mk: int
    nk: int
    mn: int


class ProblemFacts:
    """Facts of the problems of one device.

    Attributes:
        groups: `group` of a column set is a place in it.
    """

    def __init__(self, profile: DeviceProfile | None) -> None:
        self._profile = profile
        self.groups: list[Group] = []
        self._places: dict[Hashable, int] = {}
        self._plain: dict[tuple[str, str], _Plain | None] = {}

    def columns(self, keys: Sequence[str], m: Sequence[int], n: Sequence[int], k: Sequence[int]) -> Columns:
        """Columns `m n k group flops bytes class bound roofline_us`, a row a key.

        `group` is -1 where this version can't read the key; `flops` and `bytes` end at 2**62. `bound` is 1 for compute,
        0 for memory, and -1 without a profile; `roofline_us` is NaN then.
        """
        found: Columns = {name: np.array(values, np.int64) for name, values in (("m", m), ("n", n), ("k", k))}
        found |= {"group": np.full(len(keys), -1, np.int32)}
        found |= {name: np.zeros(len(keys), np.int64) for name in ("flops", "bytes")}
        plain = self._all_plain(keys, m, n, k, found)
        for row in np.flatnonzero(~plain).tolist():
            if (problem := problem_or_none(keys[row])) is not None:
                found["group"][row] = self._group(problem)
                found["flops"][row], found["bytes"][row] = min(problem.flops, _MOST), min(problem.min_bytes, _MOST)
                found["m"][row], found["n"][row], found["k"][row] = problem.extents
        found["class"] = shape_classes(found["m"], found["n"], found["k"])
        return found | self._bounds(found)

    def _all_plain(
        self, keys: Sequence[str], m: Sequence[int], n: Sequence[int], k: Sequence[int], found: Columns
    ) -> npt.NDArray[np.bool_]:
        """Fills the rows of plain products, and returns a mask of them."""
        signatures: dict[tuple[str, str], int] = {}
        coefficients: list[_Plain | None] = []
        at = np.empty(len(keys), np.int32)
        for row, (key, rows, columns, depth) in enumerate(zip(keys, m, n, k, strict=True)):
            head, _, tail = key.partition(f":{rows}x{columns}x{depth}:")
            place = signatures.setdefault((head, tail), len(coefficients))
            if place == len(coefficients):
                coefficients.append(self._coefficients(head, tail, key))
            at[row] = place
        known = [each or _Plain(-1, 0, 0, 0, 0) for each in coefficients]
        group, flops, mk, nk, mn = (
            np.array([getattr(each, name) for each in known] or [0])[at]
            for name in ("group", "flops", "mk", "nk", "mn")
        )
        extents = found["m"].astype(float) * found["n"] * found["k"]
        plain: npt.NDArray[np.bool_] = (group >= 0) & (extents * flops < _MOST)
        rows_, columns_, depths = (np.where(plain, found[name], 0) for name in "mnk")
        found["group"][plain] = group[plain]
        found["flops"] = rows_ * columns_ * depths * flops
        found["bytes"] = rows_ * depths * mk + columns_ * depths * nk + rows_ * columns_ * mn
        return plain

    def _coefficients(self, head: str, tail: str, key: str) -> _Plain | None:
        """Coefficients of a plain product; None for other kinds, whose bytes follow other rules."""
        if (head, tail) not in self._plain:
            problem = problem_or_none(key) if tail else None
            self._plain[head, tail] = self._fitted(problem) if isinstance(problem, Gemm) else None
        return self._plain[head, tail]

    def _fitted(self, problem: Gemm) -> _Plain:
        # Its bytes are a·MK + b·NK + c·MN: four products give a, b and c.
        one = problem.resized(1, 1, 1)
        by_m, by_n, by_k = (
            problem.resized(*extents).min_bytes - one.min_bytes for extents in ((2, 1, 1), (1, 2, 1), (1, 1, 2))
        )
        mk, nk, mn = (by_m + by_k - by_n) // 2, (by_n + by_k - by_m) // 2, (by_m + by_n - by_k) // 2
        return _Plain(self._group(problem), one.flops, mk, nk, mn)

    def _group(self, problem: Problem) -> int:
        fields, sizes = problem.fields(), dict(zip("mnk", problem.extents, strict=True))
        extents = tuple(name for name in sizes if fields.get(name) == sizes[name])
        around = {name: value for name, value in fields.items() if name not in extents}
        place = self._places.setdefault((problem.kind, extents, tuple(around.items())), len(self.groups))
        if place == len(self.groups):
            self.groups.append(Group(problem.kind, problem.dtype, around, extents))
        return place

    def _bounds(self, found: Columns) -> Columns:
        """`bound` and `roofline_us`, as `space.rank` has them for one problem."""
        rows = len(found["group"])
        if self._profile is None:
            return {"bound": np.full(rows, -1, np.int32), "roofline_us": np.full(rows, np.nan)}
        rates = np.array([*(self._profile.peak_tflops(group.dtype) for group in self.groups), 1.0])
        compute_us = found["flops"] / rates[found["group"]] / 1e6
        roofline_us = np.maximum(compute_us, found["bytes"] / self._profile.hbm_read_tbs / 1e6)
        return {"bound": (roofline_us < 2 * compute_us).astype(np.int32), "roofline_us": roofline_us}


def problem_or_none(key: str) -> Problem | None:
    """The problem with this key; None where this version can't read it."""
    try:
        return problem_from_key(key)
    except SpaceError:
        return None
