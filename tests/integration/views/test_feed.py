"""The feed tells what becomes of a campaign, on both kinds of database."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.views.hub import EventHub
from space.kinds.gemm import Gemm
from tests.fleet import BY_HAND, PROBLEMS, Fleet
from tests.restores import copy_over
from tests.support import DEVICE, FAMILY, keep_best, measured
from tuner.evidence import revocations
from tuner.evidence.store import Store
from tuner.fleet.campaigns.workers import Workers
from tuner.views.feed import Feed
from tuner.views.rounds import ProgressBoard


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as opened:
        yield opened


def test_a_round_is_told_as_one_of_its_device(store: Store) -> None:
    fleet, feed = Fleet(store), Feed(store, Workers(store, BY_HAND), ProgressBoard())
    fleet.campaign(PROBLEMS[:2])
    hands = [fleet.hand(number) for number in range(2)]
    feed.poll()
    for hand in hands:
        hand.claimed()
    assert [event.device for event in feed.poll() if event.name == "round"] == [DEVICE] * 2


def test_what_a_cancelled_campaign_comes_to_is_told(store: Store) -> None:
    fleet, feed = Fleet(store), Feed(store, Workers(store, BY_HAND), ProgressBoard())
    campaign = fleet.campaign(PROBLEMS[:3])
    hand = fleet.hand()
    task = hand.claimed()
    feed.poll()

    def told() -> list[tuple[str, dict[str, int]]]:
        return [(event.data["status"], event.data["problems"]) for event in feed.poll() if event.name == "campaign"]

    fleet.campaigns.cancel(campaign.id)
    assert told() == [("cancelled", {"waiting": 2, "open": 1})]
    fleet.sweeper.sweep()
    hand.work(task)
    fleet.sweeper.sweep()
    assert told() == [("cancelled", {"skipped": 2, "done": 1})]
    assert (told(), feed._seen.campaigns) == ([], {})
    # Skipped without any round.
    other = fleet.campaign(PROBLEMS[3:5])
    feed.poll()
    fleet.campaigns.cancel(other.id)
    assert [told(), told()] == [[("cancelled", {"waiting": 2})], []]
    fleet.sweeper.sweep()
    assert [told(), told(), feed._seen.campaigns] == [[("cancelled", {"skipped": 2})], [], {}]


def test_what_came_and_went_between_two_looks_is_told(store: Store) -> None:
    """A page may have read it in between, and would show it for good."""
    fleet, feed = Fleet(store), Feed(store, Workers(store, BY_HAND), ProgressBoard())
    fleet.hand(0)
    fleet.campaigns.cancel(fleet.campaign(PROBLEMS[:1]).id)
    fleet.fall_silent()
    fleet.sweeper.sweep()
    feed.poll()
    assert feed.poll() == []
    gone = fleet.hand(1).id
    cancelled = fleet.campaign(PROBLEMS[1:2]).id
    fleet.campaigns.cancel(cancelled)
    fleet.fall_silent()
    fleet.sweeper.sweep()
    told = [(event.name, event.data["id"], event.data["status"]) for event in feed.poll()]
    assert sorted(told) == [("campaign", cancelled, "cancelled"), ("worker", gone, "gone")]
    assert feed.poll() == []


def test_what_is_revoked_is_told(store: Store) -> None:
    """A page would show it until it is loaded anew, where it was no best."""
    fleet, feed = Fleet(store), Feed(store, Workers(store, BY_HAND), ProgressBoard())
    fleet.campaign(PROBLEMS[:1])
    fleet.hand(1)
    hand = fleet.hand()
    task = hand.claimed()
    hand.begin(task)
    hand.report(task, [measured(FAMILY.config({}), problem=PROBLEMS[0])], ended="done")
    feed.poll()
    revocations.revoke(store, worker="worker-1")
    assert feed.poll() == []
    revocations.revoke(store, worker="worker-0")
    (told,) = feed.poll()
    assert (told.name, told.data) == ("revoked", {"count": 1, "problems": [PROBLEMS[0].key]})
    assert feed.poll() == []


def test_no_stream_resumes_across_a_restore(tmp_path: Path) -> None:
    async def scenario(file: Path, store: Store) -> None:
        hub = EventHub(lambda: Feed(store, Workers(store, BY_HAND), ProgressBoard()), threading.Event())
        listener, _ = await hub.listen(None)
        copy_over(file, tmp_path / "earlier.db")
        keep_best(store)
        told = await listener.next(30.0)
        copy_over(tmp_path / "earlier.db", file)
        last = told[-1][0].id
        # Everything that is shown has to be read again: the lost best is no event, nor is the lost measurement.
        assert (await listener.next(30.0), listener.missed) == ([], True)
        back, resumed = await hub.listen(last)
        assert (resumed, back.id()) == (False, listener.id())
        keep_best(store, Gemm(512, 256, 256))
        assert [event.name for _, event in await listener.next(30.0)] == ["best", "measurements"]
        for each in (listener, back):
            each.close()
        await hub.close()

    with Store.open(f"sqlite:///{tmp_path}/store.db") as store:
        keep_best(store, Gemm(1024, 256, 256))
        asyncio.run(scenario(tmp_path / "store.db", store))
