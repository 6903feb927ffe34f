"""Bests of a device as columns, kept in memory and updated by what changed."""

from __future__ import annotations

import math
import statistics
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import select

from space.devices import find_profile
from space.errors import SpaceError
from space.problem import Problem
from space.rank import may_reach_power_limit, roofline_us
from space.registry import family_named, problem_from_key
from tuner.evidence import codec
from tuner.evidence.models import BestChangeRow, BestRow, DeviceRow, MeasurementRow, ProblemRow
from tuner.evidence.physics import in_range, quarantined
from tuner.evidence.records import Ratio
from tuner.evidence.stats import order_interval_us
from tuner.evidence.store import Store
from tuner.views.columnar import Configs, coded
from tuner.views.programs import PARTS, kernels_today, programs_of
from tuner.views.shapes import shape_class

#: More bests than this are sampled.
MOST_ROWS: Final = 200_000
_NORMAL: Final = 1.96
#: Fields of problems that have columns of their own.
_SHOWN: Final = frozenset({"m", "n", "k", "dtype", "layout", "kind"})
#: Problems in one `IN`.
_AT_ONCE: Final = 20_000


@dataclass(frozen=True, slots=True)
class BestFacts:
    """One best in short; times in µs, `taken_at` in seconds since 1970."""

    policy: str
    served: bool
    device_kind: str
    config_id: int
    measurement_id: int
    study_id: int
    provenance_id: int
    time_us: float
    low_us: float
    high_us: float
    first: Ratio | None
    best: Ratio | None
    tried: int
    failed: int
    taken_at: float


@dataclass(frozen=True, slots=True)
class Weight:
    """Problems that differ in M alone.

    Attributes:
        example: fields of the problem with the largest M.
        ms: values of M that were measured, ascending.
    """

    n: int
    k: int
    kind: str
    dtype: str
    layout: str | None
    ms: tuple[int, ...]
    example: dict[str, int | str]


@dataclass(frozen=True, slots=True)
class ProblemFacts:
    """What columns say of a problem, worked out once."""

    key: str
    extents: tuple[int, int, int]
    kind: str
    dtype: str
    fields: dict[str, int | str]
    flops: int
    bytes: int
    shape: str
    bound: str | None
    roofline_us: float | None


class DeviceColumns:
    """The bests of one device, read as far as `version`."""

    def __init__(self, store: Store, device: str) -> None:
        self._store, self._device, self._profile = store, device, find_profile(device)
        self.version = 0
        self._facts: dict[str, ProblemFacts] = {}
        #: By problem key, then policy.
        self._bests: dict[str, dict[str, BestFacts]] = {}

    def update(self, version: int) -> None:
        """Reads what changed up to `version`, the counter's value before."""
        if version == self.version:
            return
        with self._store.transaction() as session:
            ours = [BestRow.version > self.version, DeviceRow.name == self._device]
            changed = select(BestRow.problem_id).join(BestRow.device).where(*ours)
            gone = select(BestChangeRow.problem_id).join(BestChangeRow.device)
            gone = gone.where(BestChangeRow.version > self.version, BestChangeRow.measurement_id.is_(None))
            gone = gone.where(DeviceRow.name == self._device)
            ids = sorted({*session.scalars(changed), *session.scalars(gone)})
            for first in range(0, len(ids), _AT_ONCE):
                part = ids[first : first + _AT_ONCE]
                for key in session.scalars(select(ProblemRow.key).where(ProblemRow.id.in_(part))):
                    self._bests.pop(key, None)
                for row in session.execute(_QUERY.where(DeviceRow.name == self._device, BestRow.problem_id.in_(part))):
                    self._put(row)
        self.version = version

    def _put(self, row: Any) -> None:  # noqa: ANN401  (a row of `_QUERY`)
        samples = row.samples_us
        if not in_range(row.median_us) or not samples or not all(map(in_range, samples)):
            return
        if row.key not in self._facts:
            try:
                self._facts[row.key] = self._facts_of(problem_from_key(row.key))
            except SpaceError:
                return
        known = self._bests.setdefault(row.key, {})
        # What a GPU measured hides a replay.
        if row.policy in known and known[row.policy].device_kind < row.device_kind:
            return
        low_us, high_us = order_interval_us(samples)
        known[row.policy] = BestFacts(
            row.policy, row.served, row.device_kind, row.config_id, row.measurement_id, row.study_id,
            row.provenance_id, row.median_us, low_us, high_us, codec.ratio(row.versus_first),
            codec.ratio(row.versus_best), row.tried, sum(row.failed.values()), codec.utc(row.taken_at).timestamp(),
        )  # fmt: skip

    def _facts_of(self, problem: Problem) -> ProblemFacts:
        bound = roofline = None
        if self._profile is not None:
            bound = "compute" if may_reach_power_limit(problem, self._profile) else "memory"
            roofline = roofline_us(problem, self._profile)
        return ProblemFacts(
            problem.key, problem.extents, problem.kind, problem.dtype, problem.fields(), problem.flops,
            problem.min_bytes, shape_class(problem), bound, roofline,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self._bests)

    def rows(self, policy: str | None) -> list[tuple[ProblemFacts, BestFacts]]:
        """The served bests, or those of one policy, by problem key."""
        found = []
        for key in sorted(self._bests):
            of_problem = self._bests[key].values()
            # A GPU's own served best comes before a replayed one.
            wanted = [best for best in of_problem if (best.policy == policy if policy else best.served)]
            if wanted:
                found.append((self._facts[key], min(wanted, key=lambda best: best.device_kind)))
        return found

    def weights(self, most: int) -> list[Weight]:
        """Weights with a best, those at most values of M first."""
        alike: dict[tuple[object, ...], list[ProblemFacts]] = {}
        for key in self._bests:
            facts = self._facts[key]
            rest = (facts.kind, *sorted((name, value) for name, value in facts.fields.items() if name != "m"))
            alike.setdefault(rest, []).append(facts)
        found = []
        for rungs in alike.values():
            largest = max(rungs, key=lambda facts: facts.extents[0])
            _, n, k = largest.extents
            layout = largest.fields.get("layout")
            found.append(Weight(n, k, largest.kind, largest.dtype, str(layout) if layout else None,
                                tuple(sorted(facts.extents[0] for facts in rungs)), largest.fields))  # fmt: skip
        return sorted(found, key=lambda weight: (-len(weight.ms), weight.n, weight.k, weight.dtype))[:most]

    def document(self, policy: str | None = None) -> dict[str, Any]:
        """The columns, as `GET /v1/bests:columns` describes them."""
        rows = self.rows(policy)
        step = 1
        while len(rows) > step * MOST_ROWS:
            step *= 2
        total, gain = len(rows), {"first": _gain(best.first for _, best in rows),
                                  "best": _gain(best.best for _, best in rows)}  # fmt: skip
        rows = rows[::step]
        problems, bests = [facts for facts, _ in rows], [best for _, best in rows]
        configs = Configs([best.config_id for best in bests])
        with self._store.transaction() as session:
            programs, described = programs_of(session), configs.document(session)
        today, own = kernels_today(self._device), _own(described)
        ran = [programs[best.provenance_id] for best in bests]
        columns = _problem_columns(problems) | _times(bests) | {
            "tflops": [facts.flops / best.time_us / 1e6 for facts, best in rows],
            "policy": coded(best.policy for best in bests), "device_kind": coded(best.device_kind for best in bests),
            "config": configs.column, "measurement_id": [best.measurement_id for best in bests],
            "study_id": [best.study_id for best in bests], "tried": [best.tried for best in bests],
            "failed": [best.failed for best in bests], "taken_at": [best.taken_at for best in bests],
            **{part: coded(program[part] for program in ran) for part in PARTS},
            "stale": [bool(today) and place is not None and own[place] and program["kernels"] not in today
                      for place, program in zip(configs.column, ran, strict=True)],
        }  # fmt: skip
        return {
            "device": self._device, "version": self.version, "rows": len(rows), "total": total, "sampled": step > 1,
            "gain": gain, "columns": columns, "fields": _other_fields(problems), "policies": self._policies(problems),
            "configs": described, "ceilings": self._ceilings(),
        }  # fmt: skip

    def _policies(self, problems: Sequence[ProblemFacts]) -> dict[str, Any]:
        of_problems = [self._bests[problem.key] for problem in problems]
        names = sorted({name for known in of_problems for name in known})
        return {name: _times([known.get(name) for known in of_problems]) for name in names}

    def _ceilings(self) -> dict[str, Any] | None:
        if self._profile is None:
            return None
        rates = {dtype: self._profile.peak_tflops(dtype) for dtype in self._profile.tensor_tflops}
        return {"memory_tbs": self._profile.hbm_read_tbs, "tensor_tflops": rates, "clock_ghz": self._profile.clock_ghz}


class BestColumns:
    """The columns of a store's devices; the most recently asked for stay in memory."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._devices: dict[str, DeviceColumns] = {}
        self._lock = threading.Lock()

    def of(self, device: str) -> DeviceColumns:
        """A device's columns, read as far as the store has come."""
        with self._lock:
            version = self._store.changed()["best"]
            known = self._devices.pop(device, None)
            # A store that was restored counts anew.
            if known is None or known.version > version:
                known = DeviceColumns(self._store, device)
            self._devices[device] = known
            while len(self._devices) > MOST_DEVICES:
                del self._devices[next(iter(self._devices))]
            if not quarantined(device):
                known.update(version)
            return known


#: Devices whose bests are held; each best takes a KiB.
MOST_DEVICES: Final = 4
_QUERY: Final = (
    select(
        BestRow.policy, BestRow.served, BestRow.measurement_id, BestRow.versus_first, BestRow.versus_best,
        BestRow.tried, BestRow.failed, ProblemRow.key, DeviceRow.kind.label("device_kind"), MeasurementRow.median_us,
        MeasurementRow.samples_us, MeasurementRow.study_id, MeasurementRow.config_id, MeasurementRow.provenance_id,
        MeasurementRow.taken_at,
    )
    .select_from(BestRow).join(BestRow.problem).join(BestRow.device)
    .join(MeasurementRow, MeasurementRow.id == BestRow.measurement_id)
)  # fmt: skip


def _problem_columns(problems: Sequence[ProblemFacts]) -> dict[str, Any]:
    m, n, k = zip(*(facts.extents for facts in problems), strict=True) if problems else ((), (), ())
    return {
        "key": [facts.key for facts in problems], "m": list(m), "n": list(n), "k": list(k),
        "kind": coded(facts.kind for facts in problems), "dtype": coded(facts.dtype for facts in problems),
        "layout": coded(facts.fields.get("layout") for facts in problems),
        "class": coded(facts.shape for facts in problems), "bound": coded(facts.bound for facts in problems),
        "flops": [facts.flops for facts in problems], "bytes": [facts.bytes for facts in problems],
        "roofline_us": [facts.roofline_us for facts in problems],
    }  # fmt: skip


def _other_fields(problems: Sequence[ProblemFacts]) -> dict[str, Any]:
    names = dict.fromkeys(name for facts in problems for name in facts.fields if name not in _SHOWN)
    return {name: coded(facts.fields.get(name) for facts in problems) for name in names}


def _times(bests: Sequence[BestFacts | None]) -> dict[str, list[Any]]:
    """Times and ratios; null where there is no best."""
    found: dict[str, list[Any]] = {
        name: [getattr(best, name) if best else None for best in bests] for name in ("time_us", "low_us", "high_us")
    }
    for name in ("first", "best"):
        ratios: list[Ratio | None] = [getattr(best, name) if best else None for best in bests]
        found |= {name: [ratio.value if ratio else None for ratio in ratios]}
        found |= {f"{name}_{part}": [getattr(ratio, part) if ratio else None for ratio in ratios]
                  for part in ("low", "high", "paired")}  # fmt: skip
    return found


def _own(configs: dict[str, Any]) -> list[bool]:
    own = [family_named(family).own for family in configs["family"]["values"]]
    return [own[place] for place in configs["family"]["at"]]


def _gain(ratios: Iterable[Ratio | None]) -> dict[str, Any] | None:
    """The gain over all ratios, with a 95 % interval of its geometric mean."""
    known = [ratio for ratio in ratios if ratio]
    if not known:
        return None
    logs = [math.log(ratio.value) for ratio in known]
    mean = statistics.fmean(logs)
    reach = _NORMAL * statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else 0.0
    values = [ratio.value for ratio in known]
    return {
        "problems": len(known), "geometric_mean": math.exp(mean), "low": math.exp(mean - reach),
        "high": math.exp(mean + reach), "faster": sum(ratio.low > 1 for ratio in known),
        "tied": sum(ratio.low <= 1 <= ratio.high for ratio in known),
        "slower": sum(ratio.high < 1 for ratio in known), "least": min(values), "most": max(values),
    }  # fmt: skip
