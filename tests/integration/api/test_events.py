"""The stream of everything: each change arrives once, also after a lost connection."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from fastapi.testclient import TestClient

from api import snapshot_follower
from api.access import AccessPolicy
from api.app import create_app
from api.views.hub import EventHub, Listener, Told
from gemmtune import Client
from space.kinds.gemm import Gemm
from tests.fleet import PROBLEMS, Fleet
from tests.integration.api import asking
from tests.recorded_store import PATIENT
from tests.support import DEVICE, FACTS, FAMILY, PROBLEM, PROVENANCE, keep_best, measured
from tuner.errors import StoreError
from tuner.evidence import revocations, tokens
from tuner.evidence.store import Store
from tuner.fleet.campaigns.campaigns import Campaigns
from tuner.fleet.campaigns.records import CampaignRequest, RoundProgress, RoundReport
from tuner.fleet.campaigns.rounds import Rounds
from tuner.fleet.campaigns.workers import Workers
from tuner.views.feed import Event, Feed
from tuner.views.rounds import ProgressBoard


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open("sqlite://") as opened:
        yield opened


@pytest.fixture
def board() -> ProgressBoard:
    return ProgressBoard()


@pytest.fixture
def feed(store: Store, board: ProgressBoard) -> Feed:
    begun = Feed(store, Workers(store, PATIENT), board)
    assert begun.poll() == []
    return begun


def names(events: list[Event]) -> list[str]:
    return [event.name for event in events]


def test_a_new_best_is_told_once(store: Store, feed: Feed) -> None:
    best = keep_best(store)
    told = feed.poll()
    assert names(told) == ["best", "measurements"]
    assert told[0].data | {"version": 0} == {
        "device": DEVICE, "problem": PROBLEM.key, "policy": "burst", "version": 0, "time_us": best.median_us,
        "measurement_id": best.winner.id, "family": "sm90_wgmma", "first": 1.1, "best": None,
    }  # fmt: skip
    assert told[1].data == {"last_id": best.winner.id, "count": 1, "problems": [PROBLEM.key]}
    assert feed.poll() == []


def test_a_best_that_comes_during_a_look_is_told_once(
    store: Store, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = store.changed()
    keep_best(store)
    monkeypatch.setattr(store, "changed", lambda: seen | {"best": seen["best"] + 1})
    keep_best(store, Gemm(512, 256, 256))
    told = feed.poll()
    monkeypatch.undo()
    bests = [event.data["problem"] for event in [*told, *feed.poll()] if event.name == "best"]
    assert bests == [PROBLEM.key, Gemm(512, 256, 256).key]


def test_a_look_that_fails_loses_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    workers = Workers(store, PATIENT)
    feed = Feed(store, workers, ProgressBoard())
    feed.poll()
    keep_best(store)
    Campaigns(store).create(CampaignRequest("a", (PROBLEM,), ((DEVICE, "cuda"),)))
    workers.register("one", FACTS)
    with monkeypatch.context() as silent:
        silent.setattr(workers, "page", Mock(side_effect=StoreError("the store is silent")))
        with pytest.raises(StoreError):
            feed.poll()
    assert names(feed.poll()) == ["best", "measurements", "campaign", "worker"]


def test_many_removed_bests_are_told_as_their_number(
    store: Store, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(store)
    bad = fleet.hand(0)
    for problem in PROBLEMS[:3]:
        fleet.campaign([problem])
        task = bad.claimed()
        bad.begin(task)
        config = FAMILY.config({})
        bad.report(task, [measured(config, 10.0, problem), measured(config, 10.0, problem, "final")], ended="done")
    feed.poll()
    monkeypatch.setattr("tuner.views.feed.MOST_BESTS", 2)
    revocations.revoke(store, worker="worker-0")
    assert feed.poll()[0].data["many"] == 3


def test_a_rounds_life_is_told(store: Store, feed: Feed, board: ProgressBoard) -> None:
    workers, rounds = Workers(store, PATIENT), Rounds(store, PATIENT)
    campaign, _ = Campaigns(store).create(CampaignRequest("a", (PROBLEM,), ((DEVICE, "cuda"),)))
    assert names(feed.poll()) == ["campaign"]
    worker = workers.register("one", FACTS).worker_id
    (joined,) = feed.poll()
    assert (joined.name, joined.data["id"], joined.data["status"]) == ("worker", worker, "live")
    task = rounds.claim(worker)
    assert task is not None
    begun = feed.poll()
    assert names(begun) == ["round", "problem", "campaign"]
    assert (begun[0].data["status"], begun[1].data["status"]) == ("running", "open")
    board.put(task.round_id, RoundProgress("screen", 3, 12.5))
    progress = feed.poll()
    assert progress[0].data["progress"]["tried"] == 3
    rounds.begin(task.round_id, task.lease, PROVENANCE)
    rounds.finish(task.round_id, task.lease, RoundReport(failure="lost", hopeless=True))
    ended = feed.poll()
    assert (ended[0].data["status"], ended[1].data["status"]) == ("failed", "parked")
    assert ended[-1].data["problems"] == {"parked": 1}
    assert {event.campaign for event in ended} == {campaign.id}
    assert feed.poll() == []


def events_of(url: str, last: str, wanted: int) -> list[tuple[str, str, Any]]:
    """The first events of a stream, each with its id and its data; the connection then is cut."""
    host, port = url.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    connection.request("GET", "/v1/events", headers={"Last-Event-ID": last})
    with connection.getresponse() as response:
        found, fields = [], dict[str, str]()
        while len(found) < wanted:
            name, _, value = response.readline().decode().strip().partition(": ")
            fields[name] = value
            if not name and "event" in fields:
                found.append((fields["event"], fields["id"], json.loads(fields["data"])))
                fields = {}
    connection.close()
    return found


def test_a_cut_stream_goes_on_where_it_ended(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store, asking.serving(
        create_app(store), graceful_seconds=1
    ) as url:  # fmt: skip
        ((hello, last, said),) = events_of(url, "", 1)
        assert (hello, said["resumed"]) == ("hello", False)
        missed = [keep_best(store, Gemm(m, 256, 256)).problem.key for m in (512, 1024)]
        (_, _, said), *told = events_of(url, last, 3)
        assert said["resumed"] is True
        bests = [data["problem"] for name, _, data in told if name == "best"]
        assert bests == missed[: len(bests)]
        assert bests
        # Each event may be the last one that arrived.
        (_, _, said), *again = events_of(url, told[0][1], 2)
        assert said["resumed"] is True
        assert again[0] == told[1]


@pytest.mark.parametrize("path", ["/v1/events", "/v1/campaigns/1/events"])
def test_a_stream_ends_with_its_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setattr("api.streams.MOST_WAIT_SECONDS", 0.1)
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store:
        Campaigns(store).create(CampaignRequest("a", (PROBLEM,), ((DEVICE, "cuda"),)))
        _, secret = tokens.make(store, "reader", ["read"])
        with asking.serving(create_app(store, AccessPolicy(tokens=True)), graceful_seconds=1) as url, Client(
            url, token=secret
        ) as client:  # fmt: skip
            told = client.events() if path == "/v1/events" else client.watch_campaign(1)
            next(told)
            tokens.revoke(store, "reader")
            assert [*told] == []


class Scripted:
    """A feed whose looks find what a test has put there."""

    def __init__(self) -> None:
        self.found, self.replaced = list[Event](), False

    def poll(self) -> list[Event]:
        found, self.found = self.found, []
        return found


def run(scenario: Callable[[EventHub, Scripted], Any]) -> None:
    """Runs a scenario on a hub, and closes the hub."""

    async def whole() -> None:
        feed = Scripted()
        hub = EventHub(lambda: feed, threading.Event())  # type: ignore[arg-type, return-value]
        try:
            await scenario(hub, feed)
        finally:
            await hub.close()

    asyncio.run(whole())


async def received(listener: Listener, count: int) -> list[Told]:
    found: list[Told] = []
    while len(found) < count:
        found += await listener.next(30.0)
    return found


def test_a_lost_listener_resumes_without_loss() -> None:
    async def scenario(hub: EventHub, feed: Scripted) -> None:
        first, resumed = await hub.listen(None)
        assert not resumed
        feed.found = [Event("best", {"n": n}) for n in range(3)]
        got = await received(first, 3)
        first.close()
        feed.found = [Event("best", {"n": n}) for n in range(3, 6)]
        other, _ = await hub.listen(None)
        back, resumed = await hub.listen(got[1][0].id)
        assert resumed
        assert [event.data["n"] for _, event in await received(back, 4)] == [2, 3, 4, 5]
        other.close()
        back.close()

    run(scenario)


def test_a_listener_that_is_too_slow_is_told_what_it_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.views.hub.MOST_KEPT", 3)

    async def scenario(hub: EventHub, feed: Scripted) -> None:
        slow, _ = await hub.listen(None)
        feed.found = [Event("best", {"n": n}) for n in range(3)]
        assert (len(await received(slow, 3)), slow.missed) == (3, False)
        feed.found = [Event("best", {"n": n}) for n in range(4)]
        while feed.found:
            await asyncio.sleep(0.01)
        assert (await slow.next(30.0), slow.missed) == ([], True)
        feed.found = [Event("best", {"n": 4})]
        assert ([event.data["n"] for _, event in await received(slow, 1)], slow.missed) == ([4], False)
        slow.close()

    run(scenario)


def test_a_stream_that_missed_events_says_hello_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def missing(listener: Listener, seconds: float) -> list[Told]:
        await asyncio.sleep(0.01)
        listener.missed = True
        return []

    monkeypatch.setattr(Listener, "next", missing)
    with (
        Store.open(f"sqlite:///{tmp_path}/store.db") as store,
        TestClient(create_app(store)) as http,
        http.stream("GET", "/v1/events?seconds=10") as response,
    ):
        lines = (line for line in response.iter_lines() if line.startswith("data:"))
        said = [json.loads(next(lines).removeprefix("data:")) for _ in range(2)]
    assert [each["resumed"] for each in said] == [False, False]


@pytest.mark.parametrize("said", ["", "x", "0-0", "deadbeef-1", "-", "-5", "1-\u0663", "9" * 90])
def test_an_id_of_another_service_does_not_resume(said: str) -> None:
    async def scenario(hub: EventHub, feed: Scripted) -> None:
        feed.found = [Event("best", {})]
        listener, resumed = await hub.listen(said)
        assert not resumed
        assert listener.id().startswith(hub.epoch)
        listener.close()

    run(scenario)


def test_a_failing_store_ends_no_stream_and_hides_no_change() -> None:
    class Failing(Scripted):
        def poll(self) -> list[Event]:
            if not self.found:
                raise OSError("gone")
            return super().poll()

    async def scenario() -> None:
        feed = Failing()
        hub = EventHub(lambda: feed, threading.Event())  # type: ignore[arg-type, return-value]
        listener, _ = await hub.listen(None)
        begun, feed.found = listener.id(), [Event("best", {"n": 0})]
        assert ((await listener.next(30.0)), listener.missed, (await hub.listen(begun))[1]) == ([], True, False)
        feed.found = [Event("best", {"n": 1})]
        assert (await received(listener, 1))[0][1].data == {"n": 1}
        listener.close()
        await hub.close()

    asyncio.run(scenario())


def test_a_client_that_leaves_at_once_is_forgotten() -> None:
    async def scenario(hub: EventHub, feed: Scripted) -> None:
        coming = asyncio.create_task(hub.listen(None))
        await asyncio.sleep(0)
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)
        assert coming.cancelled()
        assert not hub._listeners

    run(scenario)


def test_listeners_wake_when_the_service_stops() -> None:
    async def scenario() -> None:
        stopping = threading.Event()
        hub = EventHub(lambda: Scripted(), stopping)  # type: ignore[arg-type, return-value]
        listener, _ = await hub.listen(None)
        stopping.set()
        assert await listener.next(3_600.0) == []
        listener.close()
        await hub.close()

    asyncio.run(scenario())


def test_changes_of_many_bests_are_one_event(store: Store, feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.views.feed.MOST_BESTS", 2)
    for m in (64, 128, 192):
        keep_best(store, Gemm.parse(f"{m}x256x256"))
    told = feed.poll()
    assert told[0].data["many"] >= 3


def test_whoever_hears_of_a_best_can_ask_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The snapshot that answers come from looks at the store by itself only once.
    monkeypatch.setattr(snapshot_follower, "_POLL_SECONDS", 3600.0)
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store, asking.serving(
        create_app(store), graceful_seconds=1
    ) as url:  # fmt: skip
        ((_, last, _),) = events_of(url, "", 1)
        for us in (10.0, 5.0):
            keep_best(store, us=us)
            name = ""
            while name != "best":
                _, (name, last, _) = events_of(url, last, 2)
            with Client(url) as client:
                assert client.best(PROBLEM.m, PROBLEM.n, PROBLEM.k, device=DEVICE).time_us == us


def test_what_a_round_found_is_caught_up_with_before_its_end_is_told(
    store: Store, board: ProgressBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    caught: list[int] = []
    feed = Feed(store, Workers(store, PATIENT), board, lambda: caught.append(store.changed()["best"]))
    fleet = Fleet(store)
    fleet.campaign(PROBLEMS[:1])
    hand = fleet.hand()
    task = hand.claimed()
    feed.poll()
    changed = store.changed

    def before_the_round_ends() -> dict[str, int]:
        found = changed()
        monkeypatch.undo()
        hand.work(task)
        return found

    monkeypatch.setattr(store, "changed", before_the_round_ends)
    assert [event.data["status"] for event in feed.poll() if event.name == "problem"] == ["done"]
    assert caught[-1] == changed()["best"] > 0


def test_whoever_asks_after_an_end_or_an_undoing_gets_what_came_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_follower, "_POLL_SECONDS", 3600.0)
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store, TestClient(create_app(store)) as http:
        while http.get("/readyz").status_code != 200:
            pass
        fleet = Fleet(store)
        campaign = fleet.campaign(PROBLEMS[:1])
        hand = fleet.hand()
        hand.work(hand.claimed())
        fleet.sweeper.sweep()
        assert "event: end" in http.get(f"/v1/campaigns/{campaign.id}/events").text
        asked: dict[str, int | str] = {"m": PROBLEMS[0].m, "n": PROBLEMS[0].n, "k": PROBLEMS[0].k}
        assert http.get("/v1/best", params=asked | {"require": "measured"}).status_code == 200
        for us in (10.0, 9.0):
            keep_best(store, us=us)
        change = store.best_changes(PROBLEM, DEVICE)[-1].id
        problem: dict[str, int | str] = {"m": PROBLEM.m, "n": PROBLEM.n, "k": PROBLEM.k}
        http.post("/v1/best:rollback", json={"problem": problem, "device": DEVICE, "change": change})
        assert http.get("/v1/best", params=problem | {"device": DEVICE}).json()["time_us"] == 10.0
