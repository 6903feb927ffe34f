"""The page's content, from the snapshot and the store."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Any, Final

import orjson

from api import cursors
from api.answer_service import AnswerService
from api.dashboard.plot import Plot, plot
from api.snapshot import Snapshot
from api.tables import TableView, TableViews
from space.devices import find_profile
from space.errors import SpaceError
from space.problem import Problem
from space.rank import roofline_us
from space.registry import DEFAULT_KIND, KINDS, problem_from_key, problem_of
from tuner.evidence.records import Ratio
from tuner.evidence.store import Store
from tuner.fleet.campaigns.records import Progress
from tuner.fleet.campaigns.results import newest
from tuner.fleet.campaigns.statistics import FleetStatistics, fleet_statistics

_BESTS: Final = 40
_CAMPAIGNS: Final = 10


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """A GPU model with its bests, workers and rounds."""

    name: str
    bests: int
    replayed: int
    workers: int
    waiting: int
    running: int
    busy: float
    per_second: float


@dataclass(frozen=True, slots=True)
class BestRow:
    """A best with its evidence.

    Attributes:
        share: share of the roofline bound; None if the device's rates are unknown.
        entry: the best as in a table.
    """

    label: str
    config: str
    share: float | None
    first: Ratio | None
    best: Ratio | None
    entry: dict[str, Any]


@dataclass(frozen=True, slots=True)
class BestsPart:
    """Some bests of one device.

    Attributes:
        total, found: bests of the device, and how many of them match the search.
        cursor: cursor of the next page; None on the last page.
    """

    device: str
    total: int
    found: int
    rows: list[BestRow]
    plot: Plot | None
    cursor: str | None


@dataclass(frozen=True, slots=True)
class Question:
    """The form's values with the answer, or with a sentence that says what is wrong."""

    m: str = ""
    n: str = ""
    k: str = ""
    dtype: str = "bf16"
    layout: str = "nt"
    device: str = ""
    answer: dict[str, Any] | None = None
    wrong: str = ""

    @property
    def asked(self) -> bool:
        """Whether the form has a shape."""
        return bool(self.m or self.n or self.k)


def devices(snapshot: Snapshot, numbers: FleetStatistics) -> list[DeviceRow]:
    """Every device with bests or with workers."""
    queues: dict[str, list[str]] = {}
    for queue, _ in [*numbers.workers, *numbers.rounds]:
        queues.setdefault(queue.partition("/")[0], []).append(queue)
    return [
        _device(name, snapshot, numbers, sorted(set(queues.get(name, []))))
        for name in sorted({*snapshot.devices, *queues})
    ]


def _device(name: str, snapshot: Snapshot, numbers: FleetStatistics, queues: list[str]) -> DeviceRow:
    known = snapshot.devices.get(name)
    kinds = known.kinds() if known else {}

    def count(counts: dict[tuple[str, str], int], *statuses: str) -> int:
        return sum(counts.get((queue, status), 0) for queue in queues for status in statuses)

    busy = [numbers.busy_share(queue) for queue in queues if numbers.busy_share(queue)]
    return DeviceRow(
        name, sum(kinds.values()), kinds.get("recorded", 0), count(numbers.workers, "live", "draining"),
        count(numbers.rounds, "queued"), count(numbers.rounds, "running"), sum(busy) / len(busy) if busy else 0.0,
        sum(numbers.candidates_per_second(queue) for queue in queues),
    )  # fmt: skip


def bests(snapshot: Snapshot, views: TableViews, device: str, find: str, cursor: str | None) -> BestsPart:
    """A page of a device's bests whose problem keys contain `find`.

    Raises:
        HttpError: 400, the cursor belongs to another query.
    """
    if device not in snapshot.devices:
        return BestsPart(device, 0, 0, [], None, None)
    view = views.of(snapshot, device)
    filters = {"dashboard": device, "find": find}
    places = _places(view, find)
    first = 0
    if cursor:
        after = bisect_right(view.keys, cursors.decode_pair(cursor, filters))
        first = bisect_left(places, after)
    shown = places[first : first + _BESTS]
    rows = [_best(device, orjson.loads(view.held[place].entry)) for place in shown]
    more = first + _BESTS < len(places)
    following = cursors.encode(view.keys[shown[-1]], filters) if more else None
    ratios = [(row.label, row.first) for row in rows if row.first]
    return BestsPart(device, len(view.keys), len(places), rows, plot(ratios), following)


def _places(view: TableView, find: str) -> list[int]:
    if not find:
        return list(range(len(view.keys)))
    return [place for place, (key, _) in enumerate(view.keys) if find in key]


def _best(device: str, entry: dict[str, Any]) -> BestRow:
    problem, limits = problem_from_key(entry["problem"]["key"]), find_profile(device)
    first, best = entry["versus_cublaslt_first"], entry["versus_cublaslt_best"]
    return BestRow(
        label=_label(problem),
        config=entry["config"]["key"].partition(":")[2].replace(",", ", "),
        share=roofline_us(problem, limits) / entry["median_us"] if limits else None,
        first=Ratio(**first) if first else None,
        best=Ratio(**best) if best else None,
        entry=entry,
    )


def _label(problem: Problem) -> str:
    return problem.title


def question(answer_service: AnswerService, asked: Question) -> Question:
    """The question with its answer, or with a sentence that says what is wrong."""
    if not asked.asked:
        return asked
    typed = (asked.m, asked.n, asked.k, asked.dtype, asked.layout, asked.device)
    try:
        m, n, k = (int(text) for text in typed[:3])
    except ValueError:
        return Question(*typed, wrong="M, N and K are whole numbers, as in 4096")
    try:
        problem = problem_of({"m": m, "n": n, "k": k, "dtype": asked.dtype, "layout": asked.layout})
    except SpaceError as error:
        return Question(*typed, wrong=str(error))
    return Question(*typed, answer=orjson.loads(answer_service.answer(problem, asked.device).text))


def campaigns(store: Store) -> list[Progress]:
    """The newest campaigns.

    Raises:
        StoreError: the store can't be read.
    """
    return newest(store, _CAMPAIGNS)


def numbers(store: Store) -> FleetStatistics:
    """Statistics of the fleet.

    Raises:
        StoreError: the store can't be read.
    """
    return fleet_statistics(store)


#: The form's choices.
CHOICES: Final = {f"{field.name}s": field.choices for field in KINDS[DEFAULT_KIND].fields if field.choices}
