"""The demonstration replays recordings as a campaign, and says that it does."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from api.app import create_app
from gemmtune import demo
from gemmtune.command import app
from tests.recorded_store import FOLDER
from tuner.evidence.store import Store
from tuner.fleet.campaigns.sweep import Maintenance
from workers.recording import file_name


def test_everything_that_it_tunes_is_recorded() -> None:
    names = [file_name(problem) for problem in demo.problems()]
    assert len(set(names)) == len(names)
    assert [name for name in names if not (FOLDER / name).is_file()] == []


def test_a_campaign_runs_beside_the_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "SHAPES", demo.SHAPES[1:3])
    monkeypatch.setattr(demo, "model_for", lambda device, folder: type("None_", (), {"model": None}))
    with Store.open(f"sqlite:///{tmp_path}/demo.db") as store:
        service = create_app(store, timing=demo.TIMING)
        replay = demo.replaying(service, store, FOLDER, real_time=False)
        with Maintenance(store, demo.TIMING), TestClient(service) as http, replay:
            # The stream ends with the campaign.
            http.get("/v1/campaigns/1/events?seconds=120")
            progress = http.get("/v1/campaigns/1").json()
            assert progress["problems"]["done"] == 2
            assert http.get("/v1/service").json()["demo"]
            service.state.follower.poll()
            assert http.get("/v1/best?m=512&n=512&k=512").json()["evidence"]["device_kind"] == "recorded"


def test_it_has_a_store_of_its_own(tmp_path: Path) -> None:
    run = CliRunner().invoke(app, ["serve", "--demo", "--db", str(tmp_path / "x.db")])
    assert run.exit_code != 0
    assert "leave out --db" in str(run.exception or run.output)
