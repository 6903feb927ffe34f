"""Campaigns and workers as a user types them: in one process, and against a service with a worker process."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from unittest.mock import patch

import pytest

from benchmarks.ports import free_port
from benchmarks.postgres import Postgres
from space.kinds.gemm import Gemm
from tests.fleet import BY_HAND, eventually, facts
from tests.shell import Shell
from tests.support import SMALL_CONFIGS, record_problem
from tuner.cli.options import same_place
from tuner.errors import Unreachable
from tuner.evidence.store import Store
from tuner.fleet.campaigns.client import LocalCampaigns
from tuner.fleet.campaigns.documents import Document
from tuner.fleet.campaigns.workers import Workers
from tuner.fleet.embedded import EmbeddedRun

SHAPES = ("256x256x256", "512x256x256", "1024x256x256")


class CampaignShell(Shell):
    """Runs commands in an environment of their own, with three recorded problems; some in a process of their own."""

    def __init__(self, folder: Path, db: str) -> None:
        for shape in SHAPES:
            record_problem(folder / "recorded" / "h200", SMALL_CONFIGS, Gemm.parse(shape))
        (folder / "list.csv").write_text("m,n,k\n256,256,256\n512,256,256\n")
        super().__init__(folder, {
            "GEMMTUNE_DB": db,
            "GEMMTUNE_CACHE_DIR": str(folder / "cache"),
            "GEMMTUNE_RECORDED_DIR": str(folder / "recorded"),
            "GEMMTUNE_HEARTBEAT_SECONDS": "5",
        })  # fmt: skip

    @contextmanager
    def started(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GEMMTUNE_")}
        with (
            (self.home / f"{words[0]}.log").open("wb") as log,
            subprocess.Popen([sys.executable, "-m", "gemmtune", *words], env=environment | self.environment,
                             stdout=log, stderr=log) as process,
        ):  # fmt: skip
            try:
                yield process
            finally:
                process.kill()


def test_suggested_commands_name_the_store_that_was_given(tmp_path: Path) -> None:
    """Else the campaign 1 of another store is watched, and a token is made where the service does not look."""
    shell = CampaignShell(tmp_path, f"sqlite:///{tmp_path}/default.db")
    other = str(tmp_path / "an other.db")
    made = shell("campaign", "create", str(tmp_path / "list.csv"), "--device", "H200", "--db", other)
    assert f"gemmtune campaign watch 1 --db '{other}'" in " ".join(made.out.split())
    assert f"`gemmtune worker list --db '{other}'`" in made.sentence
    assert f"campaign watch 1 --db '{other}'" in " ".join(
        [*shell("campaign", "pause", "1", "--db", other).out.split(),
         *shell("campaign", "resume", "1", "--db", other).out.split()]
    )  # fmt: skip
    port = str(free_port())
    with shell.started("serve", "--auth", "on", "--port", port, "--db", other):
        log = tmp_path / "serve.log"
        eventually(lambda: "the page:" in log.read_text())
        assert f"gemmtune token create NAME --scope read --db '{other}'" in " ".join(log.read_text().split())


def test_a_suggested_command_tells_no_password() -> None:
    assert same_place("postgresql+psycopg://me:secret@db/x") == " --db 'postgresql+psycopg://me:***@db/x'"
    assert same_place(None, "https://tune.example", insecure=True) == " --url https://tune.example --insecure"
    assert same_place(None) == ""



@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> CampaignShell:
    folder = tmp_path_factory.mktemp("campaigns")
    Store.open(f"sqlite:///{folder}/store.db").close()
    return CampaignShell(folder, str(folder / "store.db"))


def test_a_campaign_runs_here_and_the_same_command_resumes_it(shell: CampaignShell) -> None:
    words = ("campaign", "run", str(shell.home / "list.csv"), "--ladder", "m=1024 n=256 k=256", "--device",
             "recorded:h200")  # fmt: skip
    first = shell(*words)
    assert first.code == 0, first.err
    assert "No GPU is used" in first.err
    assert "3 done" in first.out
    assert "against cuBLASLt's first choice: 1.2" in first.out
    again = shell(*words, "--json").json
    assert (again["progress"]["campaign"]["id"], again["progress"]["tried"]) == (1, 24)
    assert shell("best", "512x256x256", "--json").json["source"] == "stale"
    listed = shell("campaign", "results", "1", "--json").json["problems"]
    assert [entry["status"] for entry in listed] == ["done"] * 3
    assert shell("campaign", "results", "1").code == 0
    assert [entry["status"] for entry in shell("campaign", "list", "--json").json["campaigns"]] == [
        "finished"
    ]


def test_a_ladder_of_several_lines_is_a_campaign_whose_results_tell_problems_of_one_shape_apart(tmp_path: Path) -> None:
    shell = CampaignShell(tmp_path, str(tmp_path / "store.db"))
    shell("campaign", "create", "--ladder", "m=64 n=256 k=256 batch=1,2\n\tepilogue=none,bias")
    (campaign,) = shell("campaign", "list", "--json").json["campaigns"]
    assert campaign["name"] == "m=64 n=256 k=256 batch=1,2 epilogue=none,bias"
    listed = shell("campaign", "results", "1").out.splitlines()
    assert len({line.partition("NVIDIA")[0].strip() for line in listed if "64x256x256" in line}) == 4


def test_what_runs_again_is_resumed_as_well(tmp_path: Path) -> None:
    shell = CampaignShell(tmp_path, str(tmp_path / "store.db"))
    words = ("campaign", "run", str(shell.home / "list.csv"), "--device", "recorded:h200", "--json")

    def ran(*more: str) -> int:
        return int(shell(*words, *more).json["progress"]["campaign"]["id"])

    # None of them gets to the end: it is as if each had been interrupted.
    with patch.object(EmbeddedRun, "run"):
        assert [ran(), ran("--again"), ran()] == [1, 1, 1]
        assert shell("campaign", "cancel", "1").code == 0
        assert [ran("--again"), ran("--again"), ran()] == [2, 2, 2]
        assert shell("campaign", "cancel", "2").code == 0
        assert shell(*words).code == 3
        assert [ran("--again"), ran()] == [3, 3]


def test_a_dry_run_makes_nothing(shell: CampaignShell) -> None:
    before = shell("campaign", "list", "--json").out
    said = shell("campaign", "create", "--ladder", "m=1..8192:x2 n=4096,4097 k=4096", "--dry-run")
    assert said.code == 0, said.err
    assert "28 problems on 1 device model, " in said.out
    assert "no campaign was created" in said.out
    assert shell("campaign", "list", "--json").out == before


def test_a_dry_run_of_what_would_run_here_counts_this_process_as_its_worker(shell: CampaignShell) -> None:
    words = ("campaign", "run", str(shell.home / "list.csv"), "--device", "recorded:h200", "--dry-run")
    assert "with 1 live worker that can take it: about" in shell(*words).out
    found = shell(*words, "--json").json
    assert (found["workers"], found["seconds"]) == (1, found["gpu_seconds"])


@pytest.mark.parametrize("words", ["run --device recorded:h200", "create --device 'recorded:NVIDIA H200'"])
def test_both_dry_runs_foresee_that_a_problem_was_not_recorded(shell: CampaignShell, words: str) -> None:
    asked = ("campaign", *shlex.split(words), "--ladder", "m=256,300 n=256 k=256", "--dry-run")
    said = shell(*asked)
    assert said.code == 6
    assert said.out.count("will be parked") == 1
    assert ":300x256x256:b1:none (not recorded on NVIDIA H200)" in said.out
    # What is parked costs nothing.
    whole, alone = shell(*asked, "--json").json, shell(*asked[:-2], "m=256 n=256 k=256", "--dry-run", "--json")
    assert alone.code == 0
    assert [whole[part] for part in ("problems", "most_candidates")] == [2, alone.json["most_candidates"]]
    assert whole["gpu_seconds"] == pytest.approx(alone.json["gpu_seconds"])


def test_a_dry_run_foresees_why_nothing_that_was_recorded_can_be_measured(shell: CampaignShell) -> None:
    early = [config.changed({"pdl": 1}) for config in SMALL_CONFIGS]
    record_problem(shell.home / "recorded" / "h200", early, Gemm.parse("320x256x256"))
    words = ("campaign", "run", "--device", "recorded:h200", "--ladder", "m=320 n=256 k=256")
    foreseen, ran = shell(*words, "--dry-run", "--json"), shell(*words, "--json")
    assert (foreseen.code, ran.code) == (6, 6)
    (parked,) = ran.json["parked"]
    assert "holds 8 candidates, all of them with an early launch" in parked
    (entry,) = foreseen.json["untunable"]
    assert entry["rules"].startswith(f"{parked}: ")


def test_what_is_not_recorded_here_may_be_recorded_elsewhere(shell: CampaignShell, postgres: Postgres) -> None:
    words = ("campaign", "create", "--ladder", "m=300 n=256 k=256", "--dry-run", "--device")
    assert shell(*words, "recorded:L40S").code == 0
    assert shell(*words, "recorded:NVIDIA H200").code == 6
    assert shell(*words, "recorded:NVIDIA H200", "--db", postgres.database()).code == 0


def test_a_campaign_that_only_recorded_workers_could_take_says_so_at_once(tmp_path: Path) -> None:
    shell = Shell(tmp_path, {"GEMMTUNE_DB": str(tmp_path / "store.db")})
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store:
        Workers(store, BY_HAND).register("recorded", replace(facts(), kind="recorded"))
    words = ("campaign", "create", "--ladder", "m=256 n=256 k=256")
    made = shell(*words)
    assert made.code == 0
    assert "no live worker can take it now: it waits for a worker of NVIDIA H200" in made.sentence
    assert "recorded workers take only campaigns for --device 'recorded:NVIDIA H200'" in made.sentence
    assert "no live worker" not in shell(*words, "--device", "recorded:NVIDIA H200").err
    assert "with 1 live worker that can take it" in shell(*words, "--device", "recorded:NVIDIA H200", "--dry-run").out


def test_a_worker_that_runs_once_does_not_wait_for_ever(
    shell: CampaignShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.cli.worker.PATIENCE_SECONDS", 0.0)
    said = shell("worker", "run", "--once", "--device", "recorded:h200", "--url", f"http://127.0.0.1:{free_port()}")
    assert said.code == 7
    assert "does not answer" in said.err.splitlines()[-1]


@pytest.mark.parametrize("words", ["campaign show 99", "worker drain 99", "worker revoke nobody"])
def test_what_is_not_there_has_one_exit_code(shell: CampaignShell, words: str) -> None:
    said = shell(*words.split())
    assert said.code == 6
    assert said.sentence.startswith("gemmtune: there is no ")


def test_a_worker_that_has_left_is_no_service_that_refuses(shell: CampaignShell) -> None:
    with Store.open(f"sqlite:///{shell.environment['GEMMTUNE_DB']}") as store:
        left = (workers := Workers(store, BY_HAND)).register("node-9", facts()).worker_id
        workers.leave(left)
    said = shell("worker", "drain", str(left))
    assert (said.code, said.sentence.startswith(f"gemmtune: worker {left} is gone: `gemmtune worker")) == (6, True)


@pytest.mark.parametrize(
    ("change", "fix"), [("pause", "`gemmtune campaign resume 1`, then run it again"), ("cancel", "--again creates")]
)
def test_a_campaign_that_would_not_go_on_is_not_waited_for(tmp_path: Path, change: str, fix: str) -> None:
    shell = CampaignShell(tmp_path, str(tmp_path / "store.db"))
    words = ("campaign", "run", str(shell.home / "list.csv"), "--device", "recorded:h200")
    with patch.object(EmbeddedRun, "run"):
        shell(*words)
    assert shell("campaign", change, "1").code == 0
    said = shell(*words)
    assert said.code == 3
    assert fix in said.sentence


def test_who_watches_a_campaign_outlasts_a_restart(shell: CampaignShell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.cli.campaign._WATCH_SECONDS", 0.0)
    number = shell("campaign", "create", "--ladder", "m=16 n=256 k=256", "--json").json["id"]
    progress, calls = LocalCampaigns.progress, count(1)

    def restarting(client: LocalCampaigns, campaign: int) -> Document:
        match next(calls):
            case 2:
                raise Unreachable("planted")
            case 3:
                client.change(campaign, "cancel")
        return progress(client, campaign)

    with patch.object(LocalCampaigns, "progress", restarting):
        watched = shell("campaign", "watch", str(number))
    assert (watched.code, "planted; trying again" in watched.err) == (0, True)

    monkeypatch.setattr("tuner.cli.campaign.PATIENCE_SECONDS", 0.0)
    number, calls = shell("campaign", "create", "--ladder", "m=17 n=256 k=256", "--json").json["id"], count(1)
    with patch.object(LocalCampaigns, "progress", restarting):
        assert shell("campaign", "watch", str(number)).code == 7
    # There was no service to begin with.
    calls = count(2)
    with patch.object(LocalCampaigns, "progress", restarting):
        assert "trying again" not in shell("campaign", "watch", str(number)).err


def test_pause_resume_cancel_and_watch(shell: CampaignShell) -> None:
    made = shell("campaign", "create", str(shell.home / "list.csv"), "--json").json
    number = str(made["id"])
    for change, status in (("pause", "paused"), ("resume", "running"), ("cancel", "cancelled")):
        assert shell("campaign", change, number, "--json").json["status"] == status
    assert "cancelled" in shell("campaign", "watch", number).out
    assert "(cancelled)" not in shell("campaign", "show", number).out
    refused = shell("campaign", "resume", number)
    assert (refused.code, "cannot be resumed" in refused.err) == (3, True)


def test_a_service_and_a_worker_process_with_tokens(postgres: Postgres, tmp_path: Path) -> None:
    shell, port = CampaignShell(tmp_path, postgres.database()), str(free_port())
    secrets = {}
    for name, scopes in (("node", ["-s", "work"]), ("ci", ["-s", "read", "-s", "submit"])):
        secrets[name] = shell("token", "create", name, *scopes, "--json").json["secret"]
    url = f"http://127.0.0.1:{port}"
    with shell.started("serve", "--port", port):
        shell.environment |= {"GEMMTUNE_TOKEN": secrets["ci"], "GEMMTUNE_URL": url}
        eventually(lambda: shell("campaign", "list").code == 0)
        assert f"the page: {url}/" in (tmp_path / "serve.log").read_text()
        made = shell("campaign", "create", str(shell.home / "list.csv"), "--device", "recorded:NVIDIA H200", "--json")
        assert made.code == 0, made.err
        # The submitter may not work, and the worker may not submit.
        assert shell("worker", "run").code == 7
        shell.environment["GEMMTUNE_TOKEN"] = secrets["node"]
        assert "scope" in shell("campaign", "create", "--ladder", "m=1 n=1 k=1").err
        with shell.started("worker", "run", "--device", "recorded:h200", "--name", "node-1") as worker:
            shell.environment["GEMMTUNE_TOKEN"] = secrets["ci"]
            ended = shell("campaign", "watch", "1", "--json").json
            assert ended["progress"]["problems"]["done"] == 2
            assert ended["gain"]["problems"] == 2
            # On a busy machine it may have been silent for too long and registered again.
            listed = shell("worker", "list", "--gone", "--json").json["workers"]
            assert ({entry["name"] for entry in listed}, sum(entry["rounds"] for entry in listed)) == ({"node-1"}, 2)
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(120) == 0
        assert shell("worker", "list", "--json").json["workers"] == []

        # Two devices of one host get a process each; both leave when there is no work.
        made = shell("campaign", "create", "--ladder", "m=1024 n=256 k=256", "--device", "recorded:NVIDIA H200")
        assert made.code == 0, made.err
        shell.environment["GEMMTUNE_TOKEN"] = secrets["node"]
        devices = ("--device", "recorded:h200") * 2
        with shell.started("worker", "run", *devices, "--name", "two", "--once") as pool:
            assert pool.wait(300) == 0, (tmp_path / "worker.log").read_text()
        shell.environment["GEMMTUNE_TOKEN"] = secrets["ci"]
        listed = shell("worker", "list", "--gone", "--json").json["workers"]
        assert {"two.0", "two.1"} <= {entry["name"] for entry in listed}
        assert sum(entry["rounds"] for entry in listed) == 3
