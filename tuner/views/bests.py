"""Bests of a device as columns, kept in memory and updated by what changed."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from sqlalchemy import bindparam, select, union
from sqlalchemy.orm import Session

from space.devices import find_profile
from tuner.evidence import changes
from tuner.evidence.models import BestChangeRow, BestRow, DeviceRow, ProblemRow
from tuner.evidence.physics import quarantined
from tuner.evidence.stats import mean_interval
from tuner.evidence.store import Store
from tuner.views import versions
from tuner.views.best_rows import UNKNOWN, Columns, Floats, compare, open_rows, read, replaced, taken
from tuner.views.columnar import Configs, coded, coded_at, rows_of
from tuner.views.problem_facts import ProblemFacts
from tuner.views.programs import PARTS, Programs
from tuner.views.shapes import CLASSES

#: More bests than this are sampled.
MOST_ROWS: Final = 200_000
#: Devices whose bests are held; each best takes half a KiB.
MOST_DEVICES: Final = 4
#: Above this number of changed problems, reading all rows is as quick.
_MOST_CHANGED: Final = 1_000
#: With more changed problems a document has all rows: putting so many into a page's columns would hold up the page.
MOST_SINCE: Final = 200
#: Rules are asked and kernels compared for so long at once, some forty bests: an answer may wait for them.
_AT_ONCE_SECONDS: Final = 0.01
#: While they are, documents tell no more often what is known by now: each is written anew, with all of its rows.
_TOLD_SECONDS: Final = 1.0
#: Fields of problems that have columns of their own.
_SHOWN: Final = frozenset({"m", "n", "k", "dtype", "layout", "kind"})
#: Columns that are shown as they are.
_PLAIN: Final = ("m", "n", "k", "flops", "bytes", "roofline_us", "config", "measurement_id", "study_id", "tried",
                 "failed", "taken_at")  # fmt: skip
#: Times and ratios, which a best has under each policy.
_TIMES: Final = ("time_us", "low_us", "high_us", "first", "first_low", "first_high", "best", "best_low", "best_high")
_PAIRED: Final = ("first_paired", "best_paired")
_BOUNDS: Final = ("memory", "compute", None)
#: Columns that a document is made from.
_READ: Final = (*_PLAIN, *_TIMES, *_PAIRED, "key", "group", "stale", "forbidden", "class", "bound", "policy",
                "device_kind", "provenance_id")  # fmt: skip
_Rows = npt.NDArray[np.intp]
#: Problems of a device with a best that is new or gone. Building a statement takes longer than running it.
_CHANGED: Final = union(
    select(BestRow.problem_id).join(BestRow.device)
    .where(BestRow.version > bindparam("version"), DeviceRow.name == bindparam("device")),
    select(BestChangeRow.problem_id).join(BestChangeRow.device)
    .where(BestChangeRow.version > bindparam("version"), BestChangeRow.measurement_id.is_(None),
           DeviceRow.name == bindparam("device")),
)  # fmt: skip
_CHANGED_KEYS: Final = select(ProblemRow.id, ProblemRow.key).where(ProblemRow.id.in_(_CHANGED)).order_by(ProblemRow.key)


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


class DeviceColumns:
    """The bests of one device, read as far as `counted`, the counter's value.

    Finding out whether rules still allow a config takes long, and so does whether a kernel has changed, where sources
    have, as after an upgrade. Comparisons that take longer than `_AT_ONCE_SECONDS` continue in the background.
    """

    def __init__(self, store: Store, device: str) -> None:
        self._store, self._device, self._profile = store, device, find_profile(device)
        self.counted, self._of_store = 0, 0
        self._facts, self._configs, self._programs = ProblemFacts(self._profile), Configs(), Programs()
        self._bests: Columns = {}
        self._lock = threading.Lock()
        self._compared, self._comparing, self._edition = 0, False, object()
        self._told = 0.0

    def update(self, version: int) -> None:
        """Reads what changed up to `version`, the counter's value before."""
        if version == self.counted:
            return
        with self._lock, self._store.transaction() as session:
            ids = self._changed(session) if self._bests else None
            if ids is None or len(ids) > _MOST_CHANGED:
                self._bests = self._read(session, None)
            elif ids:
                self._bests = replaced(self._bests, ids, self._read(session, ids))
            self.counted, self._of_store = version, versions.of_store(session)

    @property
    def version(self) -> int:
        """The number of the last change, which no other store has."""
        return self._of_store * versions.CHANGES + self.counted

    @property
    def state(self) -> tuple[object, int, int]:
        """A value that changes with every document, and that no other store's columns have."""
        return self._edition, self.counted, self._compared

    def compare(self) -> None:
        """Finds out which kernels have changed, and which configs a rule forbids; goes on in the background."""
        if self._bests and not self._comparing and self._compare_some():
            self._comparing = True
            threading.Thread(target=self._compare_all, name="compare-kernels", daemon=True).start()

    def _compare_all(self) -> None:
        try:
            while self._compare_some():
                # Python runs one thread at a time: answers come first.
                time.sleep(2 * _AT_ONCE_SECONDS)
        finally:
            # The next question begins again.
            self._comparing = False

    def _compare_some(self) -> int:
        """Compares for a moment; returns how many are left."""
        with self._lock:
            if not len(open_rows(self._bests)):
                return 0
            until = time.monotonic() + _AT_ONCE_SECONDS
            left = compare(self._device, self._bests, self._configs, self._programs.known, until)
            if not left or until > self._told + _TOLD_SECONDS:
                self._compared, self._told = self._compared + 1, until
            return left

    def _read(self, session: Session, ids: list[int] | None) -> Columns:
        return read(session, self._device, ids, self._facts, self._configs, self._programs)

    def _changed(self, session: Session) -> list[int]:
        """Problems with a best that is new or gone."""
        found = session.connection().execute(_CHANGED, {"version": self.counted, "device": self._device})
        return sorted(number for (number,) in rows_of(found))

    def __len__(self) -> int:
        numbers = self._bests["problem_id"] if self._bests else ()
        return int(np.count_nonzero(numbers[1:] != numbers[:-1])) + 1 if len(numbers) else 0

    def rows(self, policy: str | None) -> _Rows:
        """Rows of the served bests, or of those of one policy: one a problem, a GPU's own before a replayed one."""
        if not self._bests:
            return np.empty(0, np.intp)
        wanted = self._bests["policy"] == policy if policy else self._bests["served"]
        rows = np.flatnonzero(wanted)
        numbers = self._bests["problem_id"][rows]
        return rows[np.append([True], numbers[1:] != numbers[:-1])] if len(rows) else rows

    def weights(self, most: int) -> list[Weight]:
        """Weights with a best, those at most values of M first."""
        if not self._bests:
            return []
        alike: dict[tuple[int, int, int], set[int]] = {}
        for m, *rest in zip(*(self._bests[name].tolist() for name in ("m", "n", "k", "group")), strict=True):
            alike.setdefault(tuple(rest), set()).add(m)
        found = []
        for (n, k, place), ms in alike.items():
            group = self._facts.groups[place]
            layout = group.around.get("layout")
            found.append(Weight(n, k, group.kind, group.dtype, str(layout) if layout else None, tuple(sorted(ms)),
                                group.fields(max(ms), n, k)))  # fmt: skip
        return sorted(found, key=lambda weight: (-len(weight.ms), weight.n, weight.k, weight.dtype))[:most]

    def document(self, policy: str | None = None) -> dict[str, Any]:
        """The columns of a device with bests, as `GET /v1/bests:columns` describes them."""
        with self._lock:
            return self._document(policy, None)

    def since(self, after: int, policy: str | None = None) -> dict[str, Any] | None:
        """The same columns with only the rows that changed after a version.

        Returns:
            None if all rows have to be read: the version is of another store, as before a restore, or too much has
            changed.
        """
        of_store, after = divmod(after, versions.CHANGES)
        with self._lock:
            if of_store != self._of_store or not 0 < after <= self.counted or len(self.rows(policy)) > MOST_ROWS:
                return None
            with self._store.transaction() as session:
                found = session.connection().execute(_CHANGED_KEYS, {"version": after, "device": self._device})
                changed = dict(rows_of(found))
            return self._document(policy, changed) if len(changed) <= MOST_SINCE else None

    def _document(self, policy: str | None, changed: dict[int, str] | None) -> dict[str, Any]:
        """A document.

        Args:
            changed: ids and keys of the problems whose rows it has; None for all.
        """
        chosen, step = self.rows(policy), 1
        while len(chosen) > step * MOST_ROWS:
            step *= 2
        rows = chosen[::step]
        if changed is not None:
            rows = rows[np.isin(self._bests["problem_id"][rows], np.fromiter(changed, np.int64, len(changed)))]
        bests = {name: self._bests[name] for name in _READ}
        bests = bests if len(rows) == len(bests["key"]) else taken(bests, rows)
        bests["config"], configs = self._configs.document(bests["config"])
        return {
            "device": self._device, "version": self.version, "rows": len(rows), "total": len(chosen),
            "sampled": step > 1, "changed": None if changed is None else list(changed.values()),
            "gain": {name: _gain(self._bests, name, chosen) for name in ("first", "best")},
            "columns": self._columns(bests), "fields": self._other_fields(bests), "policies": self._policies(rows),
            "configs": configs, "ceilings": self._ceilings(),
        }  # fmt: skip

    def _columns(self, bests: Columns) -> dict[str, Any]:
        groups = self._facts.groups
        at, numbers = bests["group"], sorted(self._programs.known)
        programs = [self._programs.known[number] for number in numbers]
        ran = np.searchsorted(numbers, bests["provenance_id"]).astype(np.int32)
        return {
            **{name: bests[name] for name in _PLAIN},
            "key": bests["key"].tolist(),
            "kind": coded_at([group.kind for group in groups], at),
            "dtype": coded_at([group.dtype for group in groups], at),
            "layout": coded_at([group.around.get("layout") for group in groups], at),
            "stale": _booleans(bests["stale"]), "forbidden": _booleans(bests["forbidden"]),
            "class": coded_at(CLASSES, bests["class"]), "bound": coded_at(_BOUNDS, bests["bound"] % len(_BOUNDS)),
            "tflops": (bests["flops"] / bests["time_us"] / 1e6).astype(np.float32),
            **{name: coded(bests[name].tolist()) for name in ("policy", "device_kind")},
            **{part: coded_at([program[part] for program in programs], ran) for part in PARTS},
            **{name: bests[name] for name in _TIMES}, **{name: _booleans(bests[name]) for name in _PAIRED},
        }  # fmt: skip

    def _other_fields(self, bests: Columns) -> dict[str, Any]:
        groups = self._facts.groups
        names = dict.fromkeys(name for group in groups for name in group.around if name not in _SHOWN)
        return {name: coded_at([group.around.get(name) for group in groups], bests["group"]) for name in names}

    def _policies(self, rows: _Rows) -> dict[str, Any]:
        """Times of the same problems under each policy, if there are several."""
        ids, policies = self._bests["problem_id"], sorted(set(self._bests["policy"].tolist()))
        if len(policies) < 2:
            return {}
        # Rows of one problem are neighbours: number the problems, and find the shown row of each.
        numbers = np.cumsum(np.append([0], ids[1:] != ids[:-1]))
        shown = np.full(numbers[-1] + 1, -1, np.intp)
        shown[numbers[rows]] = np.arange(len(rows))
        wanted = shown[numbers]
        found: dict[str, Any] = {}
        for name in policies:
            # Of one problem's rows the first is a GPU's own: it is written last.
            ours = np.flatnonzero((wanted >= 0) & (self._bests["policy"] == name))[::-1]
            at = np.full(len(rows), -1, np.intp)
            at[wanted[ours]] = ours
            missing, at = at < 0, np.maximum(at, 0)
            found[name] = {column: np.where(missing, np.nan, self._bests[column][at]) for column in _TIMES}
            for column in _PAIRED:
                found[name][column] = _booleans(np.where(missing, UNKNOWN, self._bests[column][at]))
        return found

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
        self._counted: dict[str, int] = {}
        self._lock = threading.Lock()

    def of(self, device: str) -> DeviceColumns:
        """A device's columns, read as far as the store has come."""
        with self._lock:
            counted = self._store.changed()
            if changes.replaced(self._counted, counted):
                self._devices.clear()
            self._counted, version = counted, counted["best"]
            known = self._devices.pop(device, None)
            # A store that was restored counts anew.
            if known is None or known.counted > version:
                known = DeviceColumns(self._store, device)
            self._devices[device] = known
            while len(self._devices) > MOST_DEVICES:
                del self._devices[next(iter(self._devices))]
            if not quarantined(device):
                known.update(version)
        known.compare()
        return known


def _booleans(column: npt.NDArray[Any]) -> npt.NDArray[np.bool_] | list[bool | None]:
    """Truth values; null where one is unknown."""
    if (column != UNKNOWN).all():
        return column.astype(np.bool_)
    # The last one is that of `UNKNOWN`.
    return list(np.array([False, True, None], object)[column])


def _gain(bests: Columns, name: str, rows: _Rows) -> dict[str, Any] | None:
    """The gain over all ratios of some rows, with a 95 % interval of its geometric mean: of one problem, its ratio's.

    A best that a rule forbids by now is not served: nobody gains by it. Until rules have been asked, it counts.
    """
    there = rows[np.isfinite(bests[name][rows]) & (bests["forbidden"][rows] != 1)]
    values: Floats
    values, low, high = (bests[column][there] for column in (name, f"{name}_low", f"{name}_high"))
    if not len(values):
        return None
    logs = np.log(values)
    least, most = mean_interval(logs.tolist()) if len(logs) > 1 else (math.log(low[0]), math.log(high[0]))
    return {
        "problems": len(values), "geometric_mean": math.exp(logs.mean()), "low": math.exp(least),
        "high": math.exp(most), "faster": int((low > 1).sum()), "tied": int(((low <= 1) & (high >= 1)).sum()),
        "slower": int((high < 1).sum()), "least": float(values.min()), "most": float(values.max()),
    }  # fmt: skip
