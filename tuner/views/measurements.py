"""Measurements as columns, kept in memory and extended by what was added."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
from sqlalchemy import ColumnElement, Text, cast, func, select
from sqlalchemy.orm import Session

from tuner.evidence import changes
from tuner.evidence.campaign_models import CampaignProblemRow
from tuner.evidence.models import DeviceRow, MeasurementRow, ProblemRow, RevokedRow, StudyRow
from tuner.evidence.physics import LEAST_US, MOST_US
from tuner.evidence.store import Store
from tuner.views import versions
from tuner.views.best_rows import seconds_since_1970
from tuner.views.columnar import Coder, Configs, Places, coded_at, loads_all, rows_of, texts_by_id

#: Most rows of one document.
MOST_ROWS: Final = 200_000
#: All measurements of a store are held up to this id; 100,000 rows take 9 MB.
MOST_HELD: Final = 250_000
#: Questions to a larger store whose rows stay in memory.
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
        after: `version` of an earlier document: only what came since; 0 for everything.
        limit: with more rows, only ids that a power of two divides are taken.
    """

    problem: str | None = None
    device: str | None = None
    campaign: int | None = None
    study: int | None = None
    after: int = 0
    limit: int = 100_000


class Rows:
    """Measurements in the order of their ids, as arrays; repeated values once."""

    def __init__(self, step: int = 1) -> None:
        self.step = step
        self._coders = {name: Coder() for name in _CODED}
        self._arrays: dict[str, npt.NDArray[Any]] = {"id": np.empty(0, np.int64)}
        self._arrays |= {name: np.empty(0, np.float64) for name in _NUMBERS}
        self._arrays |= {name: np.empty(0, np.int32) for name in _CODED}
        self._configs = Configs()
        self._names: dict[str, dict[int, tuple[str, ...]]] = {"problem": {}, "device": {}}

    @property
    def ids(self) -> npt.NDArray[np.int64]:
        """The rows' ids, ascending."""
        return self._arrays["id"]

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

    def read_configs(self, session: Session) -> Places:
        """The configs' places, in the order of the coder of their ids; those that are new are read."""
        return self._configs.places(session, list(self._coders["config_id"].places))

    def of_studies(self, studies: Collection[int]) -> npt.NDArray[np.bool_]:
        """Which rows belong to one of these studies."""
        ours = [study in studies for study in self._coders["study_id"].places]
        found: npt.NDArray[np.bool_] = np.array(ours, np.bool_)[self._arrays["study_id"]]
        return found

    def columns(self, session: Session, at: npt.NDArray[np.intp] | None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Columns and configs of a document.

        Args:
            at: places of the rows that it has; None for all.
        """
        arrays = self._arrays if at is None else {name: array[at] for name, array in self._arrays.items()}
        made: dict[str, Any] = {name: arrays[name] for name in ("id", *_NUMBERS)}
        values = {name: list(coder.places) for name, coder in self._coders.items()}
        plain = [name for name in _CODED if name not in ("words", "config_id", "problem_id", "device_id")]
        made |= {name: coded_at(values[name], arrays[name]) for name in plain}
        for place, name in enumerate(_WORDS):
            made[name] = coded_at([each.split(" ")[place] for each in values["words"]], arrays["words"])
        configs = self.read_configs(session)[arrays["config_id"]]
        made["config"], configs_document = self._configs.document(configs)
        keys = self._named(session, "problem", ("key",), values["problem_id"])
        made["problem"] = coded_at([key for (key,) in keys], arrays["problem_id"])
        named = self._named(session, "device", ("name", "kind"), values["device_id"])
        made["device"] = coded_at([name for name, _ in named], arrays["device_id"])
        made["device_kind"] = coded_at([kind for _, kind in named], arrays["device_id"])
        revoked = list(session.scalars(select(RevokedRow.measurement_id)))
        made["revoked"] = np.isin(arrays["id"], np.array(revoked, np.int64))
        return made, configs_document

    def _named(
        self, session: Session, table: Literal["problem", "device"], columns: Sequence[str], ids: Sequence[int]
    ) -> list[tuple[str, ...]]:
        """Texts of rows that never change, by their ids."""
        known = self._names[table]
        for number, *texts in texts_by_id(session, table, columns, set(ids) - known.keys()):
            known[number] = tuple(texts)
        return [known[number] for number in ids]


class MeasurementColumns:
    """The columns of one store. Nothing ever changes a measurement, so what was read stays in memory.

    The rows of a small store are all held, and each question takes its own from them. In a larger store each question
    reads its own; those of the most recent questions stay.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counted: dict[str, int] = {}
        self._all = Rows()
        self._kept: OrderedDict[Wanted, tuple[int, int, Rows]] = OrderedDict()
        self._lock = threading.Lock()

    def warm(self) -> None:
        """Reads a small store's measurements and their configs."""
        with self._lock, self._store.transaction() as session:
            self._hold_all(session)
            self._all.read_configs(session)

    def document(self, wanted: Wanted) -> dict[str, Any]:
        """The wanted measurements, as `GET /v1/measurements:columns` describes them."""
        with self._lock, self._store.transaction() as session:
            counted = changes.read(session)
            if changes.replaced(self._counted, counted):
                self._all = Rows()
                self._kept.clear()
            self._counted = counted
            of_store = versions.of_store(session)
            wanted = replace(wanted, after=self._last_known(session, of_store, wanted.after))
            if self._hold_all(session):
                rows, at = self._all, self._places(session, wanted)
                total, last = len(at), int(rows.ids[at[-1]]) if len(at) else wanted.after
                step = _step(total, wanted.limit)
                at = at[rows.ids[at] % step == 0]
                columns, configs = rows.columns(session, at)
            else:
                total, last, rows = self._asked(session, wanted)
                step = rows.step
                columns, configs = rows.columns(session, None)
        return {
            "rows": len(columns["id"]), "total": total, "sampled": step > 1, "step": step,
            "version": of_store * versions.CHANGES + last, "whole": not wanted.after,
            "columns": columns, "configs": configs,
        }  # fmt: skip

    def _last_known(self, session: Session, of_store: int, version: int) -> int:
        """The last id that whoever has a version knows; 0 if it is none of this store's, as after a restore."""
        its_store, last = divmod(version, versions.CHANGES)
        newest = session.scalar(select(func.max(_Row.id))) or 0 if last else 0
        return last if its_store == of_store and last <= newest else 0

    def _hold_all(self, session: Session) -> bool:
        """Whether the store is small enough to hold all its rows; reads those that are new."""
        newest = session.scalar(select(func.max(_Row.id))) or 0
        if newest > MOST_HELD:
            self._all = Rows()
            return False
        last = int(self._all.ids[-1]) if len(self._all.ids) else 0
        if newest > last:
            self._all.add(_read(session, [_Row.id > last], 1))
        # Another store was restored here, or a lower id was committed later.
        if newest < last or len(self._all.ids) < session.scalars(select(func.count(_Row.id))).one():
            self._all = Rows()
            self._all.add(_read(session, [], 1))
        return True

    def _places(self, session: Session, wanted: Wanted) -> npt.NDArray[np.intp]:
        """Places of the wanted rows among all."""
        ids = self._all.ids
        first = int(np.searchsorted(ids, wanted.after, "right"))
        if not (of_study := _of_study(wanted)):
            return np.arange(first, len(ids))
        studies = set(session.scalars(select(StudyRow.id).where(*of_study)))
        return first + np.flatnonzero(self._all.of_studies(studies)[first:])

    def _asked(self, session: Session, wanted: Wanted) -> tuple[int, int, Rows]:
        """Number of wanted rows, the last one's id, and the rows; those read before are not read again."""
        where = _conditions(wanted)
        total, last = session.execute(select(func.count(_Row.id), func.max(_Row.id)).where(*where)).one()
        last, step = last or wanted.after, _step(total, wanted.limit)
        seen, before, rows = self._kept.pop(wanted, (wanted.after, 0, Rows(step)))
        # Fewer than before: another store was restored here.
        if rows.step != step or total < before or last < seen:
            seen, rows = wanted.after, Rows(step)
        # PostgreSQL shows this statement what was committed after the first: the next question would read it again.
        rows.add(_read(session, [*_conditions(replace(wanted, after=seen)), _Row.id <= last], step))
        if wanted.after == 0:
            self._kept[wanted] = last, total, rows
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return total, last, rows


def _step(total: int, limit: int) -> int:
    """The least power of two that leaves at most `limit` of `total` evenly distributed ids."""
    step = 1
    while total > limit * step:
        step *= 2
    return step


def _of_study(wanted: Wanted) -> list[ColumnElement[bool]]:
    """Conditions on the studies of the wanted measurements; none if it may be any study."""
    where: list[ColumnElement[bool]] = []
    if wanted.problem is not None:
        where.append(StudyRow.problem_id.in_(select(ProblemRow.id).where(ProblemRow.key == wanted.problem)))
    if wanted.device is not None:
        where.append(StudyRow.device_id.in_(select(DeviceRow.id).where(DeviceRow.name == wanted.device)))
    if wanted.campaign is not None:
        ours = CampaignProblemRow.campaign_id == wanted.campaign
        where.append(StudyRow.problem_id.in_(select(CampaignProblemRow.problem_id).where(ours)))
        where.append(StudyRow.device_id.in_(select(CampaignProblemRow.device_id).where(ours)))
    if wanted.study is not None:
        where.append(StudyRow.id == wanted.study)
    return where


def _conditions(wanted: Wanted) -> list[ColumnElement[bool]]:
    where = [_Row.id > wanted.after]
    if of_study := _of_study(wanted):
        where.append(_Row.study_id.in_(select(StudyRow.id).where(*of_study)))
    return where


#: Columns of a row of `_read`, without the clocks.
_PLAIN: Final = ("id", "study_id", "problem_id", "device_id", "words", "config_id", "median_us", "series", "taken_at",
                 "product_joules", "worker_id", "round_id")  # fmt: skip


def _read(session: Session, where: list[ColumnElement[bool]], step: int) -> Iterator[list[tuple[Any, ...]]]:
    if step > 1 or len(where) > 1:
        # An index is read for the ids, not the whole table.
        where = [_Row.id.in_(select(_Row.id).where(*where, _Row.id % step == 0))]
    dialect = session.get_bind().dialect.name
    query = select(
        _Row.id, _Row.study_id, _Row.problem_id, _Row.device_id, _Row.stage + " " + _Row.policy + " " + _Row.outcome,
        _Row.config_id, _Row.median_us, _Row.series, seconds_since_1970(dialect, _Row.taken_at), _Row.product_joules,
        _Row.worker_id, _Row.round_id, cast(_Row.clocks, Text),
    )  # fmt: skip
    result = session.connection().execute(query.where(*where).order_by(_Row.id))
    while rows := rows_of(result, _AT_ONCE):
        yield rows


def _clocks(texts: Sequence[str | None]) -> dict[str, Sequence[Any]]:
    empty = dict.fromkeys(("sm_mhz", "power_w", "temperature_c"))
    said = [each if each and isinstance(each, dict) else empty for each in loads_all(texts)]
    found: dict[str, Sequence[Any]] = {name: [_number(each.get(name)) for each in said] for name in empty}
    # Without clocks nothing is known of throttling.
    found["throttled"] = [None if each is empty else bool(each.get("throttle_reasons")) for each in said]
    return found


def _number(said: Any) -> float | None:  # noqa: ANN401  (a JSON value)
    return said if isinstance(said, int | float) else None
