"""Measurements as columns, kept in memory and extended by what was added."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import orjson
from sqlalchemy import ColumnElement, Float, Text, cast, extract, func, select
from sqlalchemy.orm import Session

from tuner.evidence.campaign_models import CampaignProblemRow
from tuner.evidence.models import DeviceRow, MeasurementRow, ProblemRow, RevokedRow, StudyRow
from tuner.evidence.physics import LEAST_US, MOST_US
from tuner.evidence.store import Store
from tuner.views.columnar import Configs, named

#: Most rows of one document.
MOST_ROWS: Final = 200_000
#: Questions whose rows stay in memory; 100,000 rows take 12 MB.
MOST_KEPT: Final = 6
_Row = MeasurementRow
#: Julian day of 1970-01-01, and seconds of a day.
_EPOCH_DAY, _DAY = 2_440_587.5, 86_400.0
#: Columns of whole numbers, of numbers, and of few distinct values; the last two of a clock that may be missing.
_WHOLE: Final = ("id",)
_NUMBERS: Final = ("median_us", "taken_at", "product_joules", "power_w")
_CODED: Final = ("study_id", "problem", "device", "config_id", "stage", "policy", "outcome", "series", "worker_id",
                 "round_id", "sm_mhz", "temperature_c", "throttled")  # fmt: skip


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


class Rows:
    """Rows in the order of their ids, as arrays; repeated values once."""

    def __init__(self, step: int = 1) -> None:
        self.step = step
        self._places: dict[str, dict[Hashable, int]] = {name: {} for name in _CODED}
        self._arrays: dict[str, npt.NDArray[Any]] = {name: np.empty(0, np.int64) for name in _WHOLE}
        self._arrays |= {name: np.empty(0, np.float64) for name in _NUMBERS}
        self._arrays |= {name: np.empty(0, np.int32) for name in _CODED}

    def __len__(self) -> int:
        return len(self._arrays["id"])

    def add(self, rows: Sequence[Sequence[Any]]) -> None:
        """Appends rows of `_read`."""
        if not rows:
            return
        *plain, clocks = zip(*rows, strict=True)
        found: dict[str, Sequence[Any]] = {**dict(zip(_PLAIN, plain, strict=True)), **_clocks(clocks)}
        found["median_us"] = [us if us is not None and LEAST_US <= us <= MOST_US else None for us in found["median_us"]]
        for name, old in self._arrays.items():
            values: Any = found[name]
            if name in self._places:
                places = self._places[name]
                values = [places.setdefault(value, len(places)) for value in values]
            self._arrays[name] = np.concatenate((old, np.array(values, dtype=old.dtype)))

    def columns(self, session: Session) -> tuple[dict[str, Any], dict[str, Any]]:
        """Columns and configs of a document."""
        made: dict[str, Any] = {name: self._arrays[name] for name in (*_WHOLE, *_NUMBERS)}
        made |= {name: {"values": list(self._places[name]), "at": self._arrays[name]} for name in _CODED}
        configs = Configs(made.pop("config_id")["values"])
        made["config"] = self._arrays["config_id"]
        made["device_kind"] = made["device"]
        for name, id_column, column in (
            ("problem", ProblemRow.id, ProblemRow.key), ("device", DeviceRow.id, DeviceRow.name),
            ("device_kind", DeviceRow.id, DeviceRow.kind),
        ):  # fmt: skip
            made[name] = _renamed(made[name], named(session, id_column, column, made[name]["values"]))
        revoked = list(session.scalars(select(RevokedRow.measurement_id)))
        made["revoked"] = np.isin(self._arrays["id"], np.array(revoked, np.int64))
        return made, configs.document(session)


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
_PLAIN: Final = ("id", "study_id", "problem", "device", "stage", "policy", "outcome", "config_id", "median_us",
                 "series", "taken_at", "product_joules", "worker_id", "round_id")  # fmt: skip


def _read(session: Session, where: list[ColumnElement[bool]], step: int) -> Sequence[Sequence[Any]]:
    if step > 1:
        # An index is read for the ids, not the whole table.
        where = [_Row.id.in_(select(_Row.id).where(*where, _Row.id % step == 0))]
    sqlite = session.get_bind().dialect.name == "sqlite"
    taken_at = (func.julianday(_Row.taken_at) - _EPOCH_DAY) * _DAY if sqlite else extract("epoch", _Row.taken_at)
    query = select(
        _Row.id, _Row.study_id, _Row.problem_id, _Row.device_id, _Row.stage, _Row.policy, _Row.outcome, _Row.config_id,
        _Row.median_us, _Row.series, cast(taken_at, Float), _Row.product_joules, _Row.worker_id, _Row.round_id,
        cast(_Row.clocks, Text),
    )  # fmt: skip
    result = session.connection().execute(query.where(*where).order_by(_Row.id))
    # Without SQLAlchemy's rows, which take longer than reading.
    return list(result.cursor.fetchall()) if result.cursor else []


def _clocks(texts: Iterable[str | None]) -> dict[str, list[Any]]:
    known: dict[str | None, tuple[Any, ...]] = {None: (None, None, None, None)}
    for text in texts:
        if text not in known:
            said = orjson.loads(text or "{}") or {}
            known[text] = (said.get("sm_mhz"), said.get("power_w"), said.get("temperature_c"),
                           bool(said.get("throttle_reasons")))  # fmt: skip
    names = ("sm_mhz", "power_w", "temperature_c", "throttled")
    columns = zip(*(known[text] for text in texts), strict=True)
    return dict(zip(names, map(list, columns), strict=True))


def _renamed(column: dict[str, Any], names: dict[int, str]) -> dict[str, Any]:
    """A coded column of ids as one of names; ids of one name get one code."""
    wanted = [names[number] for number in column["values"]]
    places = {name: place for place, name in enumerate(dict.fromkeys(wanted))}
    codes = np.array([places[name] for name in wanted], np.int32)
    return {"values": list(places), "at": codes[column["at"]] if len(codes) else column["at"]}
