"""The demonstration replays recordings as a campaign, and says that it does."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from api.app import create_app
from gemmtune import demo
from gemmtune.command import app
from tuner.evidence.store import Store
from tuner.fleet.campaigns.sweep import Maintenance
from workers.recording import file_name

RECORDINGS: Final = Path(__file__).resolve().parents[2] / "recorded" / demo.RECORDINGS


def test_all_that_is_recorded_is_tuned_once_and_the_one_that_the_pages_show_first() -> None:
    problems = demo.problems(RECORDINGS)
    assert problems[0] == demo.FIRST
    assert {file_name(problem) for problem in problems} == {path.name for path in RECORDINGS.glob("*.parquet")}
    assert len({problem.dtype for problem in problems[:12]}) > 2


def test_a_campaign_runs_beside_the_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("bf16_nt_512x512x512.parquet", "bf16_nt_4096x4096x4096.parquet"):
        shutil.copy(RECORDINGS / name, tmp_path)
    monkeypatch.setattr(demo, "model_for", lambda device, folder: type("None_", (), {"model": None}))
    with Store.open(f"sqlite:///{tmp_path}/demo.db") as store:
        service = create_app(store, timing=demo.TIMING)
        replay = demo.replaying(service, store, tmp_path, real_time=False)
        with Maintenance(store, demo.TIMING), TestClient(service) as http, replay:
            # The stream ends with the campaign.
            http.get("/v1/campaigns/1/events?seconds=120")
            campaign = http.get("/v1/campaigns/1/summary").json()
            assert campaign["progress"]["problems"]["done"] == 2
            assert campaign["progress"]["tried"] == 2 * demo.CANDIDATES
            assert http.get("/v1/service").json()["demo"]
            service.state.follower.poll()
            best = http.get("/v1/best?m=512&n=512&k=512").json()
            assert best["evidence"]["device_kind"] == "recorded"
            # Ratios are those that programs see, not those of rivals that share a clock.
            assert best["policy"] == "chain"


def test_it_has_a_store_of_its_own(tmp_path: Path) -> None:
    run = CliRunner().invoke(app, ["serve", "--demo", "--db", str(tmp_path / "x.db")])
    assert run.exit_code != 0
    assert "leave out --db" in str(run.exception or run.output)
