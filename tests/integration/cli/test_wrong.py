"""Wrong command lines and requests: one sentence, an exit code by kind, no traceback, nothing created or changed."""

from __future__ import annotations

import re
import shlex
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.server import listen
from gemmtune.command import COMMANDS
from tests.integration.cli.wrong import ON_A_STORE, ON_NOTHING, READING, REQUESTS, SETTINGS
from tests.recorded_store import FOLDER
from tests.shell import Ran, Shell
from tests.support import keep_best
from tuner.evidence.store import Store


def routes() -> list[tuple[str, str]]:
    """Routes that take a body, a parameter or a number in their path."""
    with Store.open("sqlite:///:memory:") as store:
        paths = create_app(store).openapi()["paths"]
    return [
        (method.upper(), path) for path, methods in paths.items() for method, route in methods.items()
        if "requestBody" in route
        or any(one["in"] == "query" or one["schema"].get("type") == "integer" for one in route.get("parameters", ()))
    ]  # fmt: skip


ROUTES = routes()


def content(home: Path) -> dict[str, str]:
    """Digest of every file, and every folder, below a home; without SQLite's logs, which reading makes too."""
    found = (path for path in sorted(home.rglob("*")) if not path.name.endswith(("-wal", "-shm")))
    return {str(path): sha256(path.read_bytes()).hexdigest() if path.is_file() else "" for path in found}


@pytest.fixture(scope="module")
def nothing(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    return Shell(tmp_path_factory.mktemp("nothing"))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of the recordings that ship; reading all of them takes seconds."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "h200").mkdir()
    shutil.copy(FOLDER / "bf16_nt_512x512x512.parquet", folder / "h200")
    return folder


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    home = tmp_path_factory.mktemp("kept")
    (home / "file").write_text("in the way")
    with Store.open(f"sqlite:///{home}/store.db") as store:
        keep_best(store)
    return Shell(home, {"GEMMTUNE_DB": str(home / "store.db")})


def rows(kept: Shell) -> str:
    """Digest of everything in the store but questions, which are counted."""
    with closing(sqlite3.connect(f"file:{kept.home}/store.db?mode=ro", uri=True)) as database:
        dumped = (line for line in database.iterdump() if 'INTO "miss"' not in line)
        return sha256("\n".join(dumped).encode()).hexdigest()


def check(ran: Ran, code: int, said: str) -> None:
    assert ran.code == code, ran.err or ran.out
    assert said in ran.sentence
    assert "Traceback" not in ran.err
    sentences = [line for line in ran.err.splitlines() if line.startswith("gemmtune: ")]
    assert (len(sentences), ran.err.rstrip("\n").endswith(sentences[-1])) == (1, True)
    assert len(sentences[0]) < 700


@pytest.mark.parametrize(("line", "code", "said"), ON_NOTHING, ids=[line for line, _, _ in ON_NOTHING])
def test_a_wrong_command_line_creates_nothing(nothing: Shell, line: str, code: int, said: str) -> None:
    check(nothing(*shlex.split(line.format(home=nothing.home))), code, said)
    assert content(nothing.home) == {}


@pytest.mark.parametrize("line", READING)
def test_a_command_that_reads_creates_nothing(nothing: Shell, recorded: Path, line: str) -> None:
    ran = nothing(*shlex.split(line), GEMMTUNE_RECORDED_DIR=str(recorded))
    assert ran.code == 0, ran.err
    assert content(nothing.home) == {}


@pytest.mark.parametrize(("line", "code", "said"), ON_A_STORE, ids=[line for line, _, _ in ON_A_STORE])
def test_a_wrong_command_line_changes_nothing(kept: Shell, line: str, code: int, said: str) -> None:
    before = content(kept.home)
    check(kept(*shlex.split(line.format(home=kept.home))), code, said)
    assert content(kept.home) == before


@pytest.mark.parametrize(("name", "value", "said"), SETTINGS, ids=[name for name, _, _ in SETTINGS])
def test_a_wrong_setting_is_named(nothing: Shell, name: str, value: str, said: str) -> None:
    check(nothing("best", "64x64x64", **{name: value}), 3, said)
    assert content(nothing.home) == {}


@pytest.fixture(scope="module")
def http(kept: Shell) -> Iterator[TestClient]:
    with (
        Store.open(f"sqlite:///{kept.home}/store.db") as store,
        TestClient(create_app(store), raise_server_exceptions=False) as client,
    ):
        yield client


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "said"), REQUESTS, ids=[" ".join(one[:3]) for one in REQUESTS]
)
def test_a_wrong_request_is_a_problem_in_one_sentence(
    http: TestClient, kept: Shell, method: str, path: str, body: str, status: int, said: str
) -> None:
    before = rows(kept)
    answered = http.request(method, path, content=body, headers={"Content-Type": "application/json"})
    document = answered.json()
    assert answered.status_code in ({400, 422} if body == "{" else {status}), document
    assert answered.headers["content-type"] == "application/problem+json"
    assert said in document["detail"]
    assert "Traceback" not in answered.text
    assert 20 < len(document["detail"]) < 1_200
    assert rows(kept) == before


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_every_route_refuses_a_parameter_or_a_field_that_it_does_not_know(
    http: TestClient, kept: Shell, method: str, path: str
) -> None:
    before = rows(kept)
    named = re.sub(r"\{[^}]*\}", "99999", path)
    if method == "POST":
        answered = http.post(named, json={"nonsense": 1})
    else:
        answered = http.request(method, named, params={"nonsense": "1"})
    document = answered.json()
    assert 400 <= answered.status_code < 500, document
    assert answered.headers["content-type"] == "application/problem+json"
    assert 20 < len(document["detail"]) < 1_200
    assert rows(kept) == before


def test_every_command_has_a_wrong_line() -> None:
    lines = [tuple(shlex.split(line)) for line, _, _ in (*ON_NOTHING, *ON_A_STORE)]
    for command in COMMANDS:
        for sub in getattr(command.load(), "commands", {}) or [""]:
            words = (command.name, sub) if sub else (command.name,)
            assert any(line[: len(words)] == words for line in lines), words


def test_there_are_at_least_120() -> None:
    assert len({*ON_NOTHING, *ON_A_STORE, *SETTINGS, *REQUESTS}) >= 220
    assert len(ROUTES) > 50


def test_a_taken_port_is_told_before_anything_is_promised(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    taken = listen("127.0.0.1", 0)
    try:
        ran = shell("serve", "--port", str(taken.getsockname()[1]))
    finally:
        taken.close()
    check(ran, 3, "can't listen on 127.0.0.1")
    assert "serving on" not in ran.err
    assert content(tmp_path) == {}


def test_a_command_of_json_says_its_error_in_json(nothing: Shell) -> None:
    ran = nothing("best", "0x1x1", "--json")
    assert ran.code == 3
    assert "m = 0" in ran.json["error"]
