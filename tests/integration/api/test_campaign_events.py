"""A campaign's event stream: results a page at a time, progress, and the end."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from itertools import count
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from api.campaigns import _EventFeed, _moment
from api.streams import EventStreams
from tests.fleet import PROBLEMS, Fleet
from tuner.errors import StoreError, UnknownCampaign
from tuner.evidence.campaign_models import CampaignProblemRow
from tuner.evidence.store import Store
from tuner.fleet.campaigns import results
from tuner.fleet.campaigns.workers import LiveWorker, touch

SINCE = datetime(2000, 1, 1, tzinfo=UTC)


def events(text: str) -> list[tuple[str, Any]]:
    """Names and data of server-sent events."""
    found = []
    for block in text.replace("\r\n", "\n").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        if "data" in fields:
            found.append((fields["event"], json.loads(fields["data"])))
    return found


def test_events_tell_results_and_the_end(http: TestClient, store: Store) -> None:
    fleet = Fleet(store)
    campaign = fleet.campaign(PROBLEMS[:2])
    hand = fleet.hand()
    hand.work(hand.claimed())
    told = events(http.get(f"/v1/campaigns/{campaign.id}/events?seconds=0.5").text)
    assert [name for name, _ in told] == ["result", "progress"]
    assert told[0][1]["status"] == "done"
    hand.work(hand.claimed())
    fleet.sweeper.sweep()
    told = events(http.get(f"/v1/campaigns/{campaign.id}/events").text)
    assert [name for name, _ in told] == ["result", "result", "progress", "end"]
    assert told[-1][1]["gain"]["problems"] == 2


def test_results_before_a_clock_was_set_back_hide_none_after_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(store)
    campaign = fleet.campaign(PROBLEMS[:2])
    hand, feed = fleet.hand(), _EventFeed(store, campaign.id, SINCE, lambda: None)

    def later(*given: Any, **named: Any) -> LiveWorker:  # noqa: ANN401
        worker = touch(*given, **named)
        return worker._replace(at=worker.at + timedelta(hours=1))

    with monkeypatch.context() as ahead:
        ahead.setattr("tuner.fleet.campaigns.rounds.touch", later)
        hand.work(hand.claimed())
    assert [event.event for event in feed.poll()] == ["result", "progress"]
    hand.work(hand.claimed())
    fleet.sweeper.sweep()
    assert [event.event for event in feed.poll()] == ["result", "progress", "end"]


def test_a_cancelled_campaign_ends_after_what_it_skips(store: Store) -> None:
    fleet = Fleet(store)
    campaign = fleet.campaign(PROBLEMS[:2])
    hand, feed = fleet.hand(), _EventFeed(store, campaign.id, SINCE, lambda: None)
    task = hand.claimed()
    fleet.campaigns.cancel(campaign.id)
    assert [event.event for event in feed.poll()] == ["progress"]
    hand.work(task)
    # The next sweep is half a second away.
    assert "end" not in [event.event for event in feed.poll()]
    fleet.sweeper.sweep()
    *told, end = feed.poll()
    assert "result" in [event.event for event in told]
    assert (end.event, end.data["progress"]["problems"]["waiting"]) == ("end", 0)


@pytest.mark.parametrize("cut", [0, 1, 2])
def test_a_poll_reads_one_page_and_a_cut_stream_loses_no_result(
    store: Store, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    monkeypatch.setattr("api.campaigns.PAGE", 2)
    campaign = Fleet(store).campaign(PROBLEMS[:5])
    # The first problems ended last.
    with store.transaction(writes=True) as session:
        for place, row in enumerate(session.scalars(select(CampaignProblemRow).order_by(CampaignProblemRow.id))):
            row.status, row.ended_at = "skipped", datetime(2026, 1, 1, tzinfo=UTC) - timedelta(days=place)
    feed = _EventFeed(store, campaign.id, SINCE, lambda: None)
    told = [feed.poll() for _ in range(3)]
    assert [[event.event for event in page] for page in told] == [["result"] * 2] * 2 + [["result", "progress"]]
    assert ([event.data["id"] for page in told for event in page if event.id], feed.more) == ([2, 1, 4, 3, 5], False)
    assert feed.poll() == []
    resumed = _EventFeed(store, campaign.id, _moment(told[cut][0].id), lambda: None)
    again = {event.data["id"] for event in resumed.poll() + resumed.poll() + resumed.poll() if event.id}
    # Whoever got all but the last result of a page, and nothing after it.
    assert again >= {event.data["id"] for page in (told[cut][1:], *told[cut + 1 :]) for event in page if event.id}


def test_each_page_of_a_stream_is_a_turn_of_its_own_without_a_pause(
    http: TestClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.campaigns.PAGE", 1)
    monkeypatch.setattr("api.campaigns._POLL_SECONDS", 3_600.0)
    turns, poll = list[object](), EventStreams.poll

    async def counted(streams: EventStreams, call: Callable[[], object]) -> object:
        turns.append(call)
        return await poll(streams, call)

    monkeypatch.setattr(EventStreams, "poll", counted)
    campaign = Fleet(store).campaign(PROBLEMS[:3])
    Fleet(store).campaigns.cancel(campaign.id)
    Fleet(store).sweeper.sweep()
    told = events(http.get(f"/v1/campaigns/{campaign.id}/events?seconds=60").text)
    assert [name for name, _ in told] == ["result"] * 3 + ["progress", "end"]
    # The first looks whether there is such a campaign.
    assert len(turns) == 1 + 3


def test_an_id_in_another_time_zone_is_the_same_moment(store: Store) -> None:
    campaign = Fleet(store).campaign(PROBLEMS[:2])
    ended = datetime(2026, 1, 1, 12, tzinfo=UTC)
    with store.transaction(writes=True) as session:
        for row, hours in zip(session.scalars(select(CampaignProblemRow)), (-1, 1), strict=True):
            row.status, row.ended_at = "skipped", ended + timedelta(hours=hours)
    for zone in (UTC, timezone(timedelta(hours=5)), timezone(timedelta(hours=-5))):
        feed = _EventFeed(store, campaign.id, _moment(ended.astimezone(zone).isoformat()), lambda: None)
        assert [event.event for event in feed.poll()] == ["result", "progress"]


@pytest.mark.parametrize(
    "text", ["", "no time", "2026-01-01", "1999-12-31T23:00:00+00:00", "0001-01-01T00:00:00+14:00",
             "9999-12-31T23:59:59-14:00"],
)  # fmt: skip
def test_an_id_that_no_event_had_begins_the_stream_anew(text: str) -> None:
    assert _moment(text) == SINCE


def test_a_stream_of_everything_about_no_campaign_is_refused(http: TestClient, store: Store) -> None:
    campaign = Fleet(store).campaign(PROBLEMS[:1])
    assert http.get(f"/v1/events?campaign={campaign.id}&seconds=0.1").status_code == 200
    missing = http.get(f"/v1/events?campaign={campaign.id + 1}&seconds=0.1")
    assert (missing.status_code, missing.json()["type"]) == (404, "/problems/unknown-campaign")


def test_a_problem_that_ends_again_in_a_restored_store_is_told_again(store: Store) -> None:
    campaign = Fleet(store).campaign(PROBLEMS[:2])
    feed = _EventFeed(store, campaign.id, SINCE, lambda: None)
    for minute, again in ((1, True), (1, False), (2, True)):
        with store.transaction(writes=True) as session:
            row = session.scalars(select(CampaignProblemRow)).first()
            assert row is not None
            row.status, row.ended_at = "skipped", datetime(2026, 1, 1, 12, minute, tzinfo=UTC)
        told = [event.id for event in feed.poll() if event.event == "result"]
        assert told == [f"2026-01-01T12:0{minute}:00+00:00"] * again


@pytest.mark.parametrize("fails", ["progress", "problems", "summary", "poll"])
def test_a_store_that_can_not_be_read_for_a_moment_ends_no_stream_and_loses_no_event(
    http: TestClient, store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fails: str
) -> None:
    fleet = Fleet(store)
    campaign = fleet.campaign(PROBLEMS[:2])
    hand = fleet.hand()
    for _ in PROBLEMS[:2]:
        hand.work(hand.claimed())
    fleet.sweeper.sweep()
    owner: Any = http.app.state.follower if fails == "poll" else results  # type: ignore[attr-defined]
    call, times = getattr(owner, fails), count(1)

    def failing(*given: Any, **rest: Any) -> Any:  # noqa: ANN401
        # The service's own thread polls, too.
        if threading.current_thread().name != "follower" and next(times) <= 2:
            raise StoreError("planted")
        return call(*given, **rest)

    monkeypatch.setattr("api.campaigns._POLL_SECONDS", 0.01)
    monkeypatch.setattr(owner, fails, failing)
    told = events(http.get(f"/v1/campaigns/{campaign.id}/events?seconds=60").text)
    assert [name for name, _ in told] == ["result", "result", "progress", "end"]
    assert [record.message for record in caplog.records if record.name == "gemmtune.events"] == ["no events: planted"]
    assert "unexpected failure" not in caplog.text


def test_a_stream_ends_where_the_store_has_the_campaign_no_more(
    http: TestClient, store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    campaign = Fleet(store).campaign(PROBLEMS[:1])

    def gone(*_: object) -> None:
        raise UnknownCampaign("planted")

    monkeypatch.setattr(results, "progress", gone)
    answer = http.get(f"/v1/campaigns/{campaign.id}/events?seconds=60")
    assert (answer.status_code, events(answer.text)) == (200, [])
    assert "unexpected failure" not in caplog.text
