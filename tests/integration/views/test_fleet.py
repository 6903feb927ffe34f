"""The fleet's page has every live worker and counts all, on each database, however many have left before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from tests.fleet import PROBLEMS, Fleet
from tests.support import CLOCKS, DEVICE, FAMILY, measured
from tuner.evidence import codec
from tuner.evidence.store import Store
from tuner.views import fleet as views
from tuner.views.fleet import FleetFacts, fleet_facts
from tuner.views.rounds import ProgressBoard
from workers.measurement import Measurement


@pytest.fixture
def fleet(database_url: str) -> Iterator[Fleet]:
    with Store.open(database_url) as store:
        yield Fleet(store)


def shown(fleet: Fleet) -> FleetFacts:
    return fleet_facts(fleet.store, fleet.workers, ProgressBoard())


def test_live_workers_come_first_then_those_that_left_last(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    hands = [fleet.hand(number) for number in range(6)]
    fleet.workers.leave(hands[0].id)
    # Nobody hears of the first one any more; the others may be silent for as long as the sweeper lets them.
    fleet.pass_time(3_700)
    for hand in (hands[2], hands[1]):
        fleet.workers.beat(hand.id)
        fleet.workers.leave(hand.id)
        fleet.pass_time(100)
    fleet.workers.drain(hands[4].id)
    for most, places in ((100, (5, 4, 3, 1, 2)), (4, (5, 4, 3, 1)), (2, (5, 4))):
        monkeypatch.setattr(views, "MOST_WORKERS", most)
        listed = shown(fleet)
        assert [item.worker.id for item in listed.items] == [hands[place].id for place in places]
        assert listed.workers == {"live": 2, "draining": 1, "gone": 2}


def test_all_workers_are_counted_where_few_are_listed(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.campaign(PROBLEMS[:3])
    for number in range(3):
        fleet.hand(number).claimed()
    fleet.hand(3)
    monkeypatch.setattr(views, "MOST_WORKERS", 1)
    listed = shown(fleet)
    (device,) = listed.devices
    assert (len(listed.items), listed.workers) == (1, {"live": 4})
    assert (device.device, device.live, device.draining, device.busy) == (DEVICE, 4, 0, 3)


def test_clocks_of_a_newer_version_are_shown_as_far_as_they_are_known(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = codec.measurement_columns

    def newer(one: Measurement) -> dict[str, Any]:
        found = columns(one)
        return found | {"clocks": found["clocks"] | {"hotspot_c": 80}}

    monkeypatch.setattr(codec, "measurement_columns", newer)
    fleet.campaign(PROBLEMS[:1])
    hand = fleet.hand()
    task = hand.claimed()
    hand.begin(task)
    hand.report(task, [measured(FAMILY.config({}), problem=PROBLEMS[0])])
    assert [item.last_clocks for item in shown(fleet).items] == [CLOCKS]


def test_a_fleet_takes_as_many_statements_as_one_worker(fleet: Fleet) -> None:
    fleet.campaign(PROBLEMS[:4])
    said = list[str]()
    sa.event.listen(fleet.store._engine, "before_cursor_execute", lambda *words: said.append(words[2]))
    numbers = list[int]()
    for number in range(4):
        hand = fleet.hand(number)
        task = hand.claimed()
        hand.begin(task)
        problem = next(problem for problem in PROBLEMS if problem.key == task.problem_key)
        hand.report(task, [measured(FAMILY.config({"stages": 2 + number}), problem=problem)])
        said.clear()
        found = shown(fleet)
        assert [item.last_clocks for item in found.items] == [CLOCKS] * (number + 1)
        numbers.append(len(said))
    assert len(set(numbers)) == 1, numbers
