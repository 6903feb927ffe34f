"""Bests of one device as arrays, one row per best, read from the store column by column."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from sqlalchemy import Float, Select, Text, bindparam, cast, extract, func, select
from sqlalchemy.orm import Session

from space.devices import find_profile
from space.errors import SpaceError
from space.family import family_named
from space.kind import problem_from_key
from space.rank import LONG_US
from tuner.answering.staleness import Built, change, nvrtc_here, unchanged
from tuner.evidence.legality import forbidden
from tuner.evidence.models import BestRow, DeviceRow, MeasurementRow, ProblemRow
from tuner.evidence.physics import LEAST_US, MOST_RATIO, MOST_US
from tuner.evidence.stats import BRIEF_SCATTER, LONG_SCATTER, NORMAL, SHORT_SCATTER
from tuner.views.columnar import Configs, loads_all, numbers, rows_of
from tuner.views.problem_facts import ProblemFacts
from tuner.views.programs import Programs
from workers.measurement import Policy, median_places

Columns = dict[str, npt.NDArray[Any]]
Floats = npt.NDArray[np.float64]

#: Julian day of 1970-01-01, and seconds of a day.
_EPOCH_DAY, _DAY = 2_440_587.5, 86_400.0
#: Neither true nor false: there is no ratio, or nobody has looked yet whether a kernel has changed.
UNKNOWN: Final = -1
_WHOLE: Final = ("problem_id", "measurement_id", "study_id", "config_id", "provenance_id", "tried")
_WORDS: Final = ("key", "policy", "device_kind", "build")


def seconds_since_1970(dialect: str, moment: Any) -> Any:  # noqa: ANN401  (a column of moments; an expression)
    """A column of moments as seconds."""
    sqlite = dialect == "sqlite"
    seconds = (func.julianday(moment) - _EPOCH_DAY) * _DAY if sqlite else extract("epoch", moment)
    return cast(seconds, Float)


@lru_cache
def _query(dialect: str, some: bool) -> Select[*tuple[Any, ...]]:
    """Selects what `read` reads. Building a statement takes longer than running it.

    Args:
        some: only bests of `problem_ids`.
    """
    query = (
        select(
            BestRow.problem_id, BestRow.measurement_id, MeasurementRow.study_id, MeasurementRow.config_id,
            MeasurementRow.provenance_id, BestRow.tried, ProblemRow.key, BestRow.policy, DeviceRow.kind,
            MeasurementRow.build_digest, ProblemRow.m, ProblemRow.n, ProblemRow.k, BestRow.served,
            MeasurementRow.median_us, cast(MeasurementRow.samples_us, Text), cast(BestRow.versus_first, Text),
            cast(BestRow.versus_best, Text), cast(BestRow.failed, Text),
            seconds_since_1970(dialect, MeasurementRow.taken_at),
        )
        .select_from(BestRow).join(BestRow.problem).join(BestRow.device)
        .join(MeasurementRow, MeasurementRow.id == BestRow.measurement_id).where(DeviceRow.name == bindparam("device"))
    )  # fmt: skip
    return query.where(BestRow.problem_id.in_(bindparam("problem_ids", expanding=True))) if some else query


def read(
    session: Session, device: str, problem_ids: Sequence[int] | None, facts: ProblemFacts, configs: Configs,
    programs: Programs,
) -> Columns:  # fmt: skip
    """Bests of a device, sorted by problem key, a GPU's own before replayed ones; unreadable ones are left out.

    Columns: those of `ProblemFacts.columns`; `key policy device_kind build` as text; `served`; `problem_id
    measurement_id study_id config_id provenance_id tried failed`; `config` (place in `configs`); `taken_at` in seconds;
    `time_us low_us high_us`; `first best` and their `_low _high` (NaN where there is no ratio) and `_paired` (1, 0, or
    `UNKNOWN`); `stale` and `forbidden` (1, 0, or `UNKNOWN` until `compare` has looked).

    Args:
        problem_ids: reads only bests of these problems.
    """
    query = _query(session.get_bind().dialect.name, problem_ids is not None)
    rows = rows_of(session.connection().execute(query, {"device": device, "problem_ids": problem_ids}))
    plain = list(zip(*rows, strict=True)) if rows else [()] * len(query.selected_columns)
    found: Columns = {name: np.array(values, np.int64) for name, values in zip(_WHOLE, plain, strict=False)}
    found |= {name: _texts(values) for name, values in zip(_WORDS, plain[len(_WHOLE) :], strict=False)}
    m, n, k, served, medians, samples, firsts, bests, failed, taken_at = plain[len(_WHOLE) + len(_WORDS) :]
    found |= facts.columns(found["key"].tolist(), m, n, k)
    found |= {"served": np.array(served, np.bool_), "taken_at": np.array(taken_at, np.float64)}
    counts = {text: _count(each) for text, each in zip(set(failed), loads_all(set(failed)), strict=True)}
    found["failed"] = np.array([counts[text] for text in failed], np.int64)
    found |= _times(medians, samples, _scatter(found)) | _ratios("first", firsts) | _ratios("best", bests)
    found["config"] = configs.places(session, found["config_id"].tolist())
    known = programs.of(session, found["provenance_id"].tolist())
    readable = (found["group"] >= 0) & np.isfinite(found["time_us"])
    found = taken(found, np.flatnonzero(readable & _seen(found)))
    found["stale"] = _known_stale(device, found, configs, known)
    found["forbidden"] = _known_legal(device, found, configs)
    return ordered(found)


def taken(columns: Columns, rows: npt.NDArray[np.intp]) -> Columns:
    """Some rows."""
    return {name: column[rows] for name, column in columns.items()}


def replaced(columns: Columns, problem_ids: Collection[int], new: Columns) -> Columns:
    """The rows without those of some problems, and with others in their places; `new` is in order, too."""
    gone = np.flatnonzero(np.isin(columns["problem_id"], list(problem_ids)))
    kept = {name: np.delete(column, gone) for name, column in columns.items()} if len(gone) else columns
    keys, kinds = kept["key"], kept["device_kind"]

    def order(row: int) -> tuple[str, str]:
        return keys[row], kinds[row]

    wanted = zip(new["key"].tolist(), new["device_kind"].tolist(), strict=True)
    places = [0, *(bisect_right(range(len(keys)), each, key=order) for each in wanted), len(keys)]
    return {name: _inserted(column, places, new[name]) for name, column in kept.items()}


def _inserted(column: npt.NDArray[Any], places: Sequence[int], new: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A column with further rows before those at `places[1:-1]`; as `numpy.insert`, in a third of the time."""
    parts = [column[: places[1]]]
    for row, (first, last) in enumerate(pairwise(places[1:])):
        parts += [new[row : row + 1], column[first:last]]
    return np.concatenate(parts)


def ordered(columns: Columns) -> Columns:
    """Rows by problem key; of one problem, a GPU's own before replayed ones."""
    keys = list(zip(columns["key"].tolist(), columns["device_kind"].tolist(), strict=True))
    return taken(columns, np.array(sorted(range(len(keys)), key=keys.__getitem__), np.intp))


def _texts(values: Sequence[str]) -> npt.NDArray[np.object_]:
    """Texts, equal ones as one object: they are compared and counted much faster."""
    same: dict[str, str] = {}
    found = np.empty(len(values), object)
    found[:] = [same.setdefault(value, value) for value in values]
    return found


def _count(failed: Any) -> int:  # noqa: ANN401  (a JSON value)
    """Number of failures; 0 if they are not counts by outcome."""
    counts = failed.values() if isinstance(failed, dict) else ()
    return sum(counts) if all(isinstance(count, int) and 0 <= count < 2**31 for count in counts) else 0


def _scatter(columns: Columns) -> npt.NDArray[np.float64]:
    """Known scatter of each row's samples, as `stats.scatter_of`; 0 where a problem is unreadable."""
    long = np.where(columns["roofline_us"] > LONG_US, LONG_SCATTER, SHORT_SCATTER)
    scatter = np.where(columns["bound"] == 0, BRIEF_SCATTER, long)
    # A card without a profile.
    scatter = np.where(columns["bound"] == -1, max(SHORT_SCATTER, BRIEF_SCATTER), scatter)
    known = (columns["policy"] == Policy.SUSTAINED.value) & (columns["group"] >= 0)
    return np.where(known, scatter, 0.0)


def _times(
    medians: Sequence[float | None], samples: Sequence[str], scatters: npt.NDArray[np.float64]
) -> Columns:  # fmt: skip
    """`time_us` with its interval, as `stats.median_interval_us`; NaN where no clock can have measured a time.

    Args:
        scatters: of each row's samples, where they are too few to show it.
    """
    time_us = np.array(medians, np.float64)
    low, high = np.full(len(time_us), np.nan), np.full(len(time_us), np.nan)
    taken_us = [each if isinstance(each, list) else [] for each in loads_all(samples)]
    lengths = np.fromiter(map(len, taken_us), np.int64, len(taken_us))
    for length in np.unique(lengths[lengths > 0]).tolist():
        rows = np.flatnonzero(lengths == length)
        times = np.sort(numbers([time for row in rows for time in taken_us[row]]).reshape(len(rows), length), axis=1)
        low[rows], high[rows] = times[:, median_places(length)].T
        scattered = NORMAL * scatters[rows] / length**0.5
        low[rows] = np.fmin(low[rows], time_us[rows] * (1 - scattered))
        high[rows] = np.fmax(high[rows], time_us[rows] * (1 + scattered))
        time_us[rows[~((times[:, 0] >= LEAST_US) & (times[:, -1] <= MOST_US))]] = np.nan
    time_us[(lengths == 0) | ~((time_us >= LEAST_US) & (time_us <= MOST_US))] = np.nan
    return {"time_us": time_us, "low_us": low, "high_us": high}


def _ratios(name: str, texts: Sequence[str | None]) -> Columns:
    """A ratio with its interval; NaN where there is none, or one that times cannot have."""
    said = [each if isinstance(each, dict) else None for each in loads_all(texts)]
    parts = {"value": name, "low": f"{name}_low", "high": f"{name}_high"}
    found = {named: numbers([each and each.get(part) for each in said]) for part, named in parts.items()}
    possible = np.ones(len(said), np.bool_)
    for values in found.values():
        possible &= (values > 1 / MOST_RATIO) & (values < MOST_RATIO)
    paired = [bool(each and each.get("paired")) for each in said]
    columns: Columns = {named: np.where(possible, column, np.nan) for named, column in found.items()}
    return columns | {f"{name}_paired": np.where(possible, np.array(paired, np.int8), UNKNOWN)}


def _seen(columns: Columns) -> npt.NDArray[np.bool_]:
    """Which rows are shown: what a GPU measured hides a replay under the same policy."""
    kinds = columns["device_kind"]
    if len(set(kinds.tolist())) < 2:
        return np.ones(len(kinds), np.bool_)
    named = list(zip(columns["key"].tolist(), columns["policy"].tolist(), strict=True))
    first: dict[tuple[str, str], str] = {}
    for name, kind in zip(named, kinds.tolist(), strict=True):
        first[name] = min(first.get(name, kind), kind)
    return np.array([first[name] == kind for name, kind in zip(named, kinds.tolist(), strict=True)], np.bool_)


def _known_stale(
    device: str, columns: Columns, configs: Configs, programs: dict[int, dict[str, str]]
) -> npt.NDArray[np.int8]:
    """0 where the sources are today's, 1 where another compiler is; `UNKNOWN` where texts have to be compared."""
    families = configs.families(columns["config"])
    alike = list(zip(columns["device_kind"].tolist(), families, columns["provenance_id"].tolist(), strict=True))
    decided = {
        (kind, family, number): _changed(device, kind, family, programs[number])
        for kind, family, number in dict.fromkeys(alike)
    }
    return np.fromiter(map(decided.__getitem__, alike), np.int8, len(alike))


def _changed(device: str, kind: str, family: str, program: Mapping[str, str]) -> int:
    compiled = kind == "cuda" and family_named(family).own and find_profile(device) is not None
    if compiled and nvrtc_here() not in (None, program["nvrtc"]):
        return 1  # a build's digest is also of the compiler: no text of today has it
    return 0 if unchanged(device, family, program["kernels"]) else UNKNOWN


def _known_legal(device: str, columns: Columns, configs: Configs) -> npt.NDArray[np.int8]:
    """0 where no rule can forbid a config; `UNKNOWN` where rules have to be asked."""
    if find_profile(device) is None:
        return np.zeros(len(columns["key"]), np.int8)
    families = configs.families(columns["config"])
    asked = {family: UNKNOWN if family_named(family).own else 0 for family in set(families)}
    return np.fromiter(map(asked.__getitem__, families), np.int8, len(families))


def open_rows(columns: Columns) -> npt.NDArray[np.intp]:
    """Rows that `compare` has not looked at."""
    return np.flatnonzero((columns["stale"] == UNKNOWN) | (columns["forbidden"] == UNKNOWN))


def compare(device: str, columns: Columns, configs: Configs, programs: dict[int, dict[str, str]], until: float) -> int:
    """Compares kernels' texts and asks rules, as answers do, until `time.monotonic()` is `until`, and of one row at
    least; a third of a millisecond each.

    Returns:
        Number of rows that are still unknown.
    """
    unknown = open_rows(columns).tolist()
    for done, row in enumerate(unknown):
        if done and time.monotonic() > until:
            return len(unknown) - done
        program = programs[int(columns["provenance_id"][row])]
        try:
            problem, config = problem_from_key(columns["key"][row]), configs.config(columns["config"][row])
            columns["forbidden"][row] = bool(forbidden(problem, config, device))
            if columns["stale"][row] == UNKNOWN:
                columns["stale"][row] = bool(change(Built(
                    problem, config, device, columns["device_kind"][row], program["nvrtc"], program["kernels"],
                    columns["build"][row],
                ), nvrtc_here()))  # fmt: skip
        except SpaceError:
            columns["stale"][row] = columns["forbidden"][row] = True
    return 0
