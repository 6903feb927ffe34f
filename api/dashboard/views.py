"""The page's content, from the snapshot and the store."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Any, Final

import orjson

from api import pages
from api.answer_service import AnswerService
from api.dashboard.plot import Plot, plot
from api.snapshot import Snapshot
from space.devices import find_profile
from space.errors import SpaceError
from space.rank import roofline_us
from space.registry import problem_from_key, problem_of
from tuner.evidence.records import Ratio
from tuner.fleet.campaigns.statistics import FleetStatistics

_BESTS: Final = 40


@dataclass(frozen=True, slots=True)
class BestsPart:
    """Some bests of one device.

    Attributes:
        total, found: bests of the device, and how many of them match the search.
        rows: entries of the device's table, each with its problem's title and its share of the roofline bound, which
            is None if the device's rates are unknown.
        cursor: cursor of the next page; None on the last page.
    """

    device: str
    total: int
    found: int
    rows: list[dict[str, Any]]
    plot: Plot | None
    cursor: str | None


def devices(snapshot: Snapshot, numbers: FleetStatistics) -> list[dict[str, Any]]:
    """Every device with bests or with workers: its bests, its workers and its rounds."""
    queues: dict[str, list[str]] = {name: [] for name in snapshot.devices}
    for queue in sorted({queue for queue, _ in (*numbers.workers, *numbers.rounds)}):
        queues.setdefault(queue.partition("/")[0], []).append(queue)
    return [_device(name, snapshot, numbers, queues[name]) for name in sorted(queues)]


def _device(name: str, snapshot: Snapshot, numbers: FleetStatistics, queues: list[str]) -> dict[str, Any]:
    kinds = snapshot.devices[name].kinds() if name in snapshot.devices else {}

    def count(counts: dict[tuple[str, str], int], *statuses: str) -> int:
        return sum(counts.get((queue, status), 0) for queue in queues for status in statuses)

    busy = [numbers.busy_share(queue) for queue in queues if numbers.busy_share(queue)]
    return {
        "name": name, "bests": sum(kinds.values()), "replayed": kinds.get("recorded", 0),
        "workers": count(numbers.workers, "live", "draining"), "waiting": count(numbers.rounds, "queued"),
        "running": count(numbers.rounds, "running"), "busy": sum(busy) / len(busy) if busy else 0.0,
        "per_second": sum(numbers.candidates_per_second(queue) for queue in queues),
    }  # fmt: skip


def bests(snapshot: Snapshot, device: str, find: str, cursor: str | None) -> BestsPart:
    """A page of a device's bests whose problem keys contain `find`.

    Raises:
        HttpError: 400, the cursor belongs to another query.
    """
    if device not in snapshot.devices:
        return BestsPart(device, 0, 0, [], None, None)
    view, profile = snapshot.devices[device], find_profile(device)
    filters = {"dashboard": device, "find": find}
    places = [place for place, key in enumerate(view.keys) if find in key]
    first = 0
    if cursor:
        first = bisect_left(places, bisect_right(view.keys, pages.decode(pages.ByKey, cursor, filters)))
    shown = places[first : first + _BESTS]
    following = pages.encode(view.keys[shown[-1]], filters) if first + _BESTS < len(places) else None
    rows = []
    for entry in map(orjson.loads, snapshot.entries(device, [view.keys[place] for place in shown])):
        problem = problem_from_key(entry["problem"]["key"])
        share = roofline_us(problem, profile) / entry["median_us"] if profile else None
        rows.append({"label": problem.title, "share": share, "entry": entry})
    ratios = [(row["label"], Ratio(**ratio)) for row in rows if (ratio := row["entry"]["versus_cublaslt_first"])]
    return BestsPart(device, len(view.keys), len(places), rows, plot(ratios), following)


def answer(answer_service: AnswerService, fields: dict[str, str], device: str) -> tuple[dict[str, Any] | None, str]:
    """The answer to the form's question, or a sentence that says what is wrong with it."""
    try:
        extents = {name: int(fields[name]) for name in ("m", "n", "k")}
    except ValueError:
        return None, "M, N and K are whole numbers, as in 4096"
    try:
        problem = problem_of(fields | extents)
    except SpaceError as error:
        return None, str(error)
    return orjson.loads(answer_service.answer(problem, device).answer), ""
