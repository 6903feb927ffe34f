"""The walks of five users, on one store, in the order of their names."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from tests.journeys.walking import walk
from tests.shell import Shell
from tuner.evidence.store import Store
from tuner.tables.recorded import recorded_bests

ROOT = Path(__file__).resolve().parents[2]
#: Few, so that `campaign` and `doctor` of a walk are soon done.
FILES = ("bests.json", "bf16_nt_16x2112x7168.parquet", "bf16_nt_512x512x512.parquet")
WALKS = sorted((Path(__file__).parent / "walks").glob("*.txt"))


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    home = tmp_path_factory.mktemp("journeys")
    folder = home / "recorded" / "h200"
    folder.mkdir(parents=True)
    for name in FILES:
        shutil.copy(ROOT / "recorded" / "h200" / name, folder)
    return Shell(home, {"GEMMTUNE_RECORDED_DIR": str(home / "recorded")})


@pytest.fixture(scope="module")
def service(shell: Shell) -> Iterator[TestClient]:
    url = f"sqlite:///{shell.home}/.local/share/gemmtune/gemmtune.db"
    with Store.open(url) as store, TestClient(create_app(store, recordings=recorded_bests(ROOT / "recorded"))) as http:
        yield http


@pytest.mark.parametrize("path", WALKS, ids=lambda path: path.stem)
def test_a_walk(shell: Shell, service: TestClient, path: Path) -> None:
    walk(path.read_text(), shell, service)


def test_there_are_five_users() -> None:
    assert len(WALKS) == 5
