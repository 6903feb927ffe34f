"""What one round measures: not more than a report may hold, and nothing that its study has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest
from sqlalchemy import select

from space.config import Config
from space.kinds.gemm import Gemm
from tests.fleet import CALM, PROBLEMS, FakeDevice, FakeRound, Fleet, eventually, provenance
from tests.integration.fleet.agent.test_agent import SMALL, Running, ended
from tuner.evidence.campaign_models import RoundRow
from tuner.evidence.models import MeasurementRow
from tuner.evidence.store import Store
from tuner.fleet.agent.coordinator import LocalCoordinator
from tuner.fleet.campaigns import results
from tuner.fleet.campaigns.sweep import Maintenance
from workers.measurement import Measurement
from workers.ports import More, no_more


@contextmanager
def measured_by(device: type[FakeDevice], database_url: str) -> Iterator[Store]:
    """A store with a campaign of one problem that a worker with such a device has tuned."""
    with Store.open(database_url) as store, Maintenance(store, CALM):
        campaign = Fleet(store).campaign(PROBLEMS[:1], budget=SMALL)
        with Running(LocalCoordinator(store, CALM), device) as running:
            eventually(lambda: ended(store, campaign.id) or not running.alive)
        assert results.problems(store, campaign.id)[0].tried == 40
        yield store


def test_a_round_ends_before_its_report_is_refused(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.fleet.agent.round_runner.MOST_OF_A_ROUND", 16)
    with measured_by(FakeDevice, database_url) as store, store.transaction() as session:
        assert list(session.scalars(select(RoundRow.measured).order_by(RoundRow.id))) == [16, 16, 8]


def test_a_study_that_has_its_finals_is_not_measured_again_for_another_campaign(database_url: str) -> None:
    with Store.open(database_url) as store, Maintenance(store, CALM):
        fleet = Fleet(store)
        first = fleet.campaign(PROBLEMS[:1], budget=SMALL)
        with Running(LocalCoordinator(store, CALM), FakeDevice) as running:
            eventually(lambda: ended(store, first.id) or not running.alive)
            measured = store.counts()["measurement"]
            second = fleet.campaign(PROBLEMS[:1], budget=SMALL)
            eventually(lambda: ended(store, second.id) or not running.alive)
        assert results.problems(store, second.id)[0].status.value == "done"
        assert store.counts()["measurement"] == measured


class Talkative(FakeDevice):
    """Its driver says more than a report may hold, and what no database stores."""

    def begin(self, problem: Gemm) -> FakeRound:
        class Round(FakeRound):
            def screen(self, candidates: Sequence[Config], more: More = no_more) -> Iterator[Measurement]:
                for each in super().screen(candidates, more):
                    yield replace(each, note="\0" + "x" * 9_000)

        return Round(problem, provenance(), self._crash)


def test_a_round_in_this_process_is_taken_whatever_its_driver_says(database_url: str) -> None:
    with measured_by(Talkative, database_url) as store:
        with store.transaction() as session:
            notes = set(session.scalars(select(MeasurementRow.note).where(MeasurementRow.stage == "screen")))
        assert notes == {"\N{REPLACEMENT CHARACTER}" + "x" * 3_999}
