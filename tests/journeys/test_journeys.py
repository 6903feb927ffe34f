"""The walks of five users, on one store, in the order of their names.

A walk is a text: `$` and `GET` are what the user does, `=` is the exit code or status unless it is 0 or 200, and `>`
are words that the answer must have. Line breaks of the answer don't count.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from tests.shell import Shell
from tuner.evidence.store import Store
from tuner.tables.recorded import recorded_bests

ROOT = Path(__file__).resolve().parents[2]
#: `gemmtune doctor` reads every recording that it finds.
FILES = ("bests.json", "bf16_nt_16x2112x7168.parquet", "bf16_nt_512x512x512.parquet")
WALKS = sorted((Path(__file__).parent / "walks").glob("*.txt"))


@dataclass
class Step:
    """One action of a user."""

    action: str
    code: int | None = None
    said: list[str] = field(default_factory=list)


def steps(text: str) -> list[Step]:
    found: list[Step] = []
    for line in filter(None, text.splitlines()):
        mark, _, rest = line.partition(" ")
        if mark in ("$", "GET"):
            found.append(Step(line))
        elif mark == "=":
            found[-1].code = int(rest)
        elif mark == ">":
            found[-1].said.append(rest)
        else:
            assert mark == "#", line
    return found


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


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.stem)
def test_a_walk(shell: Shell, service: TestClient, walk: Path) -> None:
    for step in steps(walk.read_text()):
        action = step.action.format(home=shell.home, recorded=shell.home / "recorded")
        if action.startswith("GET "):
            answered = service.get(action.removeprefix("GET "))
            said, code, usual = answered.text, answered.status_code, 200
        else:
            ran = shell(*shlex.split(action)[2:])
            said, code, usual = ran.out + ran.err, ran.code, 0
        expected = usual if step.code is None else step.code
        assert code == expected, f"{action}\n{said}"
        flat = " ".join(said.split())
        for words in step.said:
            assert words in flat, f"{action}: no {words!r} in\n{said}"
        assert "Traceback" not in said


def test_there_are_five_users() -> None:
    assert len(WALKS) == 5
