"""`/metrics` reports the fleet's real state."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from tests.fleet import PROBLEMS, QUEUE, Fleet
from tuner.errors import StoreError
from tuner.evidence.store import Store
from tuner.fleet.campaigns.statistics import fleet_statistics


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as opened:
        yield opened


def value(text: str, name: str, **labels: str) -> float:
    """Value of one sample."""
    shown = ",".join(f'{key}="{label}"' for key, label in sorted(labels.items()))
    found = re.search(rf"^{name}{{{re.escape(shown)}}} (\S+)$", text, re.MULTILINE)
    assert found is not None, text
    return float(found[1])


def test_rounds_workers_and_gpu_time_are_counted(store: Store) -> None:
    fleet = Fleet(store)
    hand = fleet.hand()
    fleet.campaign(PROBLEMS[:3])
    task = hand.claimed()
    hand.work(task)
    with TestClient(create_app(store)) as http:
        text = http.get("/metrics").text
    ended = [value(text, "gemmtune_rounds_total", queue=QUEUE, outcome="done")]
    assert ended == [1.0]
    assert value(text, "gemmtune_queue_depth", queue=QUEUE) >= 1
    assert value(text, "gemmtune_workers", queue=QUEUE, status="live") == 1
    assert value(text, "gemmtune_campaigns", status="running") == 1
    assert value(text, "gemmtune_candidates_measured_total", queue=QUEUE) > 0
    assert value(text, "gemmtune_candidates_per_second", queue=QUEUE) > 0
    assert 0 <= value(text, "gemmtune_gpu_busy_share", queue=QUEUE) <= 1


def test_what_alerts_watch_is_there_before_it_happens(store: Store) -> None:
    Fleet(store).hand()
    with TestClient(create_app(store)) as http:
        text = http.get("/metrics").text
    assert value(text, "gemmtune_rounds_total", queue=QUEUE, outcome="lost") == 0
    assert value(text, "gemmtune_campaign_problems", status="parked") == 0


def test_an_empty_store_has_statistics(store: Store) -> None:
    found = fleet_statistics(store)
    assert (found.rounds, found.workers, found.busy_share(QUEUE)) == ({}, {}, 0.0)


def test_a_store_that_cant_be_read_leaves_the_service_its_own_meters(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(_: Store) -> None:
        raise StoreError("planted")

    monkeypatch.setattr("api.fleet_metrics.fleet_statistics", gone)
    with TestClient(create_app(store)) as http:
        text = http.get("/metrics").text
    assert "gemmtune_snapshot_bests" in text
    assert "gemmtune_queue_depth" not in text
