"""Measurements as columns, kept in memory and extended by what was added."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
from sqlalchemy import ColumnElement, Text, cast, func, select
from sqlalchemy.orm import Session

from tuner.evidence.campaign_models import CampaignProblemRow
from tuner.evidence.models import DeviceRow, MeasurementRow, ProblemRow, RevokedRow, StudyRow
from tuner.evidence.physics import LEAST_US, MOST_US
from tuner.evidence.store import Store
from tuner.views.best_rows import seconds_since_1970
from tuner.views.columnar import Configs, Places, coded_at, loads_all, rows_of, texts_by_id

#: Most rows of one document.
MOST_ROWS: Final = 200_000
#: Questions whose rows stay in memory; 100,000 rows take 12 MB.
MOST_KEPT: Final = 6
_Row = MeasurementRow
#: Columns of numbers, and those of few distinct values. `words` are stage, policy and outcome.
_NUMBERS: Final = ("median_us", "taken_at", "product_joules", "power_w")
_CODED: Final = ("study_id", "problem_id", "device_id", "config_id", "words", "series", "worker_id", "round_id",
                 "sm_mhz", "temperature_c", "throttled")  # fmt: skip
_WORDS: Final = ("stage", "policy", "outcome")
#: Rows that are read at once.
_AT_ONCE: Final = 25_000


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which measurements; None for any.

    Attributes:
        problem: key.
        after: ids above this one.
        limit: with more rows, only ids that a power of two divides are taken.
    """

    problem: str | None = None
    device: str | None = None
    campaign: int | None = None
    study: int | None = None
    after: int = 0
    limit: int = 100_000


class _Coder:
    """Numbers for values, in the order in which the values came."""

    def __init__(self) -> None:
        self.places: dict[Hashable, int] = {}

    def add(self, values: Sequence[Hashable]) -> Places:
        """The numbers of values, some of which may be new."""
        for value in dict.fromkeys(values):
            self.places.setdefault(value, len(self.places))
        return np.fromiter(map(self.places.__getitem__, values), np.int32, len(values))


class Rows:
    """Rows in the order of their ids, as arrays; repeated values once."""

    def __init__(self, step: int = 1) -> None:
        self.step = step
        self._coders = {name: _Coder() for name in _CODED}
        self._arrays: dict[str, npt.NDArray[Any]] = {"id": np.empty(0, np.int64)}
        self._arrays |= {name: np.empty(0, np.float64) for name in _NUMBERS}
        self._arrays |= {name: np.empty(0, np.int32) for name in _CODED}
        self._configs = Configs()
        self._names: dict[str, dict[int, tuple[str, ...]]] = {"problem": {}, "device": {}}

    def __len__(self) -> int:
        return len(self._arrays["id"])

    def add(self, parts: Iterable[Sequence[Sequence[Any]]]) -> None:
        """Appends rows of `_read`."""
        arrays = {name: [old] for name, old in self._arrays.items()}
        for rows in parts:
            *plain, clocks = zip(*rows, strict=True)
            for name, values in (dict(zip(_PLAIN, plain, strict=True)) | _clocks(clocks)).items():
                coder = self._coders.get(name)
                arrays[name].append(coder.add(values) if coder else np.array(values, arrays[name][0].dtype))
        self._arrays = {name: np.concatenate(some) for name, some in arrays.items()}
        times = self._arrays["median_us"]
        times[~((times >= LEAST_US) & (times <= MOST_US))] = np.nan

    def columns(self, session: Session) -> tuple[dict[str, Any], dict[str, Any]]:
        """Columns and configs of a document."""
        made: dict[str, Any] = {name: self._arrays[name] for name in ("id", *_NUMBERS)}
        made |= {name: {"values": list(self._coders[name].places), "at": self._arrays[name]} for name in _CODED}
        words = made.pop("words")
        for place, name in enumerate(_WORDS):
            made[name] = coded_at([each.split(" ")[place] for each in words["values"]], words["at"])
        configs = made.pop("config_id")
        made["config"] = self._configs.places(session, configs["values"])[configs["at"]]
        problems, devices = made.pop("problem_id"), made.pop("device_id")
        keys = self._named(session, "problem", ("key",), problems["values"])
        made["problem"] = {"values": [key for (key,) in keys], "at": problems["at"]}
        named = self._named(session, "device", ("name", "kind"), devices["values"])
        made["device"] = coded_at([name for name, _ in named], devices["at"])
        made["device_kind"] = coded_at([kind for _, kind in named], devices["at"])
        revoked = list(session.scalars(select(RevokedRow.measurement_id)))
        made["revoked"] = np.isin(self._arrays["id"], np.array(revoked, np.int64))
        return made, self._configs.document()

    def _named(
        self, session: Session, table: Literal["problem", "device"], columns: Sequence[str], ids: Sequence[int]
    ) -> list[tuple[str, ...]]:
        """Texts of rows that never change, by their ids."""
        known = self._names[table]
        for number, *texts in texts_by_id(session, table, columns, set(ids) - known.keys()):
            known[number] = tuple(texts)
        return [known[number] for number in ids]


class MeasurementColumns:
    """The columns of one store; rows of recent questions stay in memory, since nothing ever changes one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: OrderedDict[Wanted, tuple[int, int, Rows]] = OrderedDict()
        self._lock = threading.Lock()

    def document(self, wanted: Wanted) -> dict[str, Any]:
        """The wanted measurements, as `GET /v1/measurements:columns` describes them."""
        with self._lock, self._store.transaction() as session:
            where = _conditions(wanted)
            total, last = session.execute(select(func.count(_Row.id), func.max(_Row.id)).where(*where)).one()
            last, step = last or wanted.after, 1
            while total > wanted.limit * step:
                step *= 2
            seen, before, rows = self._kept.pop(wanted, (wanted.after, 0, Rows(step)))
            # Fewer than before: another store was restored here.
            if rows.step != step or total < before or last < seen:
                seen, rows = wanted.after, Rows(step)
            rows.add(_read(session, _conditions(replace(wanted, after=seen)), step))
            if wanted.after == 0:
                self._kept[wanted] = last, total, rows
                while len(self._kept) > MOST_KEPT:
                    self._kept.popitem(last=False)
            columns, configs = rows.columns(session)
        return {
            "rows": len(rows), "total": total, "sampled": step > 1, "step": step, "last_id": last, "columns": columns,
            "configs": configs,
        }  # fmt: skip


def _conditions(wanted: Wanted) -> list[ColumnElement[bool]]:
    where: list[ColumnElement[bool]] = [_Row.id > wanted.after]
    if wanted.problem is not None:
        where.append(_Row.problem_id.in_(select(ProblemRow.id).where(ProblemRow.key == wanted.problem)))
    if wanted.device is not None:
        # Measurements have an index of studies, none of devices.
        of_device = select(StudyRow.id).join(StudyRow.device).where(DeviceRow.name == wanted.device)
        where.append(_Row.study_id.in_(of_device))
    if wanted.campaign is not None:
        ours = CampaignProblemRow.campaign_id == wanted.campaign
        where.append(_Row.problem_id.in_(select(CampaignProblemRow.problem_id).where(ours)))
        where.append(_Row.device_id.in_(select(CampaignProblemRow.device_id).where(ours)))
    if wanted.study is not None:
        where.append(_Row.study_id == wanted.study)
    return where


#: Columns of a row of `_read`, without the clocks.
_PLAIN: Final = ("id", "study_id", "problem_id", "device_id", "words", "config_id", "median_us", "series", "taken_at",
                 "product_joules", "worker_id", "round_id")  # fmt: skip


def _read(session: Session, where: list[ColumnElement[bool]], step: int) -> Iterator[list[tuple[Any, ...]]]:
    if step > 1:
        # An index is read for the ids, not the whole table.
        where = [_Row.id.in_(select(_Row.id).where(*where, _Row.id % step == 0))]
    query = select(
        _Row.id, _Row.study_id, _Row.problem_id, _Row.device_id, _Row.stage + " " + _Row.policy + " " + _Row.outcome,
        _Row.config_id, _Row.median_us, _Row.series, seconds_since_1970(session, _Row.taken_at), _Row.product_joules,
        _Row.worker_id, _Row.round_id, cast(_Row.clocks, Text),
    )  # fmt: skip
    result = session.connection().execute(query.where(*where).order_by(_Row.id))
    while rows := rows_of(result, _AT_ONCE):
        yield rows


def _clocks(texts: Sequence[str | None]) -> dict[str, Sequence[Any]]:
    empty = dict.fromkeys(("sm_mhz", "power_w", "temperature_c"))
    said = [each or empty for each in loads_all(texts)]
    found: dict[str, Sequence[Any]] = {name: [each.get(name) for each in said] for name in empty}
    # Without clocks nothing is known of throttling.
    found["throttled"] = [None if each is empty else bool(each.get("throttle_reasons")) for each in said]
    return found
