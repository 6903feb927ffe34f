"""Campaigns and workers as a user types them: in one process, and against a service with a worker process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.ports import free_port
from benchmarks.postgres import Postgres
from gemmtune.command import main
from space.kinds.gemm import Gemm
from tests.fleet import eventually
from tests.support import FAMILY, record_problem
from tuner.evidence.store import Store

SMALL = {"tile_m": 64, "consumer_warpgroups": 1, "tile_n": 64, "producer_registers": 0}
CONFIGS = [FAMILY.config(SMALL | {"raster": raster, "raster_group": group})
           for raster in ("along_m", "along_n") for group in (1, 2, 4, 8)]  # fmt: skip
SHAPES = ("256x256x256", "512x256x256", "1024x256x256")


class Shell:
    """Runs commands in an environment of their own, with three recorded problems."""

    def __init__(self, folder: Path, db: str) -> None:
        self.folder = folder
        for shape in SHAPES:
            record_problem(folder / "recorded" / "h200", CONFIGS, Gemm.parse(shape))
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("GEMMTUNE_")} | {
            "GEMMTUNE_DB": db,
            "GEMMTUNE_CACHE_DIR": str(folder / "cache"),
            "GEMMTUNE_RECORDED_DIR": str(folder / "recorded"),
            "GEMMTUNE_HEARTBEAT_SECONDS": "5",
        }
        (folder / "list.csv").write_text("m,n,k\n256,256,256\n512,256,256\n")

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "gemmtune", *words], env=self.environment, capture_output=True,
                              text=True, timeout=300)  # fmt: skip

    @contextmanager
    def started(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        with (
            (self.folder / f"{words[0]}.log").open("wb") as log,
            subprocess.Popen([sys.executable, "-m", "gemmtune", *words], env=self.environment, stdout=log,
                             stderr=log) as process,
        ):  # fmt: skip
            try:
                yield process
            finally:
                process.kill()


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    folder = tmp_path_factory.mktemp("campaigns")
    Store.open(f"sqlite:///{folder}/store.db").close()
    return Shell(folder, str(folder / "store.db"))


def test_a_campaign_runs_here_and_the_same_command_resumes_it(shell: Shell) -> None:
    words = ("campaign", "run", str(shell.folder / "list.csv"), "--ladder", "m=1024 n=256 k=256", "--device",
             "recorded:h200")  # fmt: skip
    first = shell(*words)
    assert first.returncode == 0, first.stderr
    assert "No GPU is used" in first.stderr
    assert "3 done" in first.stdout
    assert "against cuBLASLt's first choice: 1.2" in first.stdout
    again = json.loads(shell(*words, "--json").stdout)
    assert (again["progress"]["campaign"]["id"], again["progress"]["tried"]) == (1, 24)
    assert json.loads(shell("best", "512x256x256", "--json").stdout)["source"] == "measured"
    listed = json.loads(shell("campaign", "results", "1", "--json").stdout)["problems"]
    assert [entry["status"] for entry in listed] == ["done"] * 3
    assert shell("campaign", "results", "1").returncode == 0
    assert [entry["status"] for entry in json.loads(shell("campaign", "list", "--json").stdout)["campaigns"]] == [
        "finished"
    ]


def test_a_dry_run_makes_nothing(shell: Shell) -> None:
    before = shell("campaign", "list", "--json").stdout
    said = shell("campaign", "create", "--ladder", "m=1..8192:x2 n=4096,4097 k=4096", "--dry-run")
    assert said.returncode == 0, said.stderr
    assert "28 problems on 1 device models" in said.stdout
    assert "no campaign was created" in said.stdout
    assert shell("campaign", "list", "--json").stdout == before


def test_pause_resume_cancel_and_watch(shell: Shell) -> None:
    made = json.loads(shell("campaign", "create", str(shell.folder / "list.csv"), "--json").stdout)
    number = str(made["id"])
    for change, status in (("pause", "paused"), ("resume", "running"), ("cancel", "cancelled")):
        assert json.loads(shell("campaign", change, number, "--json").stdout)["status"] == status
    assert "cancelled" in shell("campaign", "watch", number).stdout
    refused = shell("campaign", "resume", number)
    assert (refused.returncode, "cannot be resumed" in refused.stderr) == (3, True)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("campaign", "create"), 3, "no problem given"),
        (("campaign", "create", "missing.csv"), 3, "missing.csv"),
        (("campaign", "create", "--ladder", "m=8..1 n=1 k=1"), 3, "does not increase"),
        (("campaign", "create", "--ladder", "m=1 n=1 k=1", "--target", "2"), 3, "target = 2.0"),
        (("campaign", "create", "--ladder", "m=1 n=1 k=1", "--gpu-seconds", "0"), 3, "gpu_seconds = 0.0"),
        (("campaign", "create", "--ladder", "m=1 n=1 k=1", "--device", "TPU"), 3, "TPU"),
        (("campaign", "create", "--ladder", "m=1 n=1 k=1", "--priority", "1000"), 3, "priority = 1000"),
        (("campaign", "show", "999"), 6, "no campaign 999"),
        (("campaign", "results", "1", "--status", "lost"), 2, "'lost' is not one of"),
        (("ladder", "4096"), 3, "weight '4096' is not NxK"),
        (("campaign", "list", "--url", "http://127.0.0.1:9"), 7, "does not answer"),
        (("campaign", "list", "--url", "nonsense"), 7, "not a service's URL"),
        (("worker", "run"), 3, "GEMMTUNE_URL"),
        (("worker", "drain", "999"), 7, "worker 999 is gone: `gemmtune worker list`"),
    ],
)
def test_bad_input_is_one_sentence_and_an_exit_code(
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    for name, value in shell.environment.items():
        if name.startswith("GEMMTUNE_"):
            monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["gemmtune", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, said in capsys.readouterr().err.replace("\n", " ")) == (code, True)


def test_a_service_and_a_worker_process_with_tokens(postgres: Postgres, tmp_path: Path) -> None:
    shell, port = Shell(tmp_path, postgres.database()), str(free_port())
    secrets = {}
    for name, scopes in (("node", ["-s", "work"]), ("ci", ["-s", "read", "-s", "submit"])):
        secrets[name] = json.loads(shell("token", "create", name, *scopes, "--json").stdout)["secret"]
    url = f"http://127.0.0.1:{port}"
    with shell.started("serve", "--port", port):
        shell.environment |= {"GEMMTUNE_TOKEN": secrets["ci"], "GEMMTUNE_URL": url}
        eventually(lambda: shell("campaign", "list").returncode == 0)
        made = shell("campaign", "create", str(shell.folder / "list.csv"), "--device", "recorded:NVIDIA H200", "--json")
        assert made.returncode == 0, made.stderr
        # The submitter may not work, and the worker may not submit.
        assert shell("worker", "run").returncode == 7
        shell.environment["GEMMTUNE_TOKEN"] = secrets["node"]
        assert "scope" in shell("campaign", "create", "--ladder", "m=1 n=1 k=1").stderr
        with shell.started("worker", "run", "--device", "recorded:h200", "--name", "node-1") as worker:
            shell.environment["GEMMTUNE_TOKEN"] = secrets["ci"]
            ended = json.loads(shell("campaign", "watch", "1", "--json").stdout)
            assert ended["progress"]["problems"]["done"] == 2
            assert ended["gain"]["problems"] == 2
            # On a busy machine it may have been silent for too long and registered again.
            listed = json.loads(shell("worker", "list", "--gone", "--json").stdout)["workers"]
            assert ({entry["name"] for entry in listed}, sum(entry["rounds"] for entry in listed)) == ({"node-1"}, 2)
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(120) == 0
        assert json.loads(shell("worker", "list", "--json").stdout)["workers"] == []

        # Two devices of one host get a process each; both leave when there is no work.
        made = shell("campaign", "create", "--ladder", "m=1024 n=256 k=256", "--device", "recorded:NVIDIA H200")
        assert made.returncode == 0, made.stderr
        shell.environment["GEMMTUNE_TOKEN"] = secrets["node"]
        devices = ("--device", "recorded:h200") * 2
        pool = shell("worker", "run", *devices, "--name", "two", "--once")
        assert pool.returncode == 0, pool.stderr
        shell.environment["GEMMTUNE_TOKEN"] = secrets["ci"]
        listed = json.loads(shell("worker", "list", "--gone", "--json").stdout)["workers"]
        assert {"two.0", "two.1"} <= {entry["name"] for entry in listed}
        assert sum(entry["rounds"] for entry in listed) == 3
