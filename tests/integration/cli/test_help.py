"""Help and version: fast because they import nothing heavy, and consistent with the commands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gemmtune.command import COMMANDS, app
from tests.support import PROBLEM, keep_best
from tuner.cli.commands import Command
from tuner.evidence.store import Store

HEAVY = ("alembic", "cuda", "fastapi", "numpy", "optuna", "pyarrow", "scipy", "sklearn", "sqlalchemy")
#: Packages that a command without a store must not import.
OF_STORES = ("alembic", "fastapi", "optuna", "scipy", "sklearn", "sqlalchemy")


def imported(*words: str) -> set[str]:
    """Top-level packages imported by a command in its own process."""
    code = (
        "import json, sys\n"
        "from gemmtune.command import main\n"
        f"sys.argv = ['gemmtune', *{words!r}]\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(json.dumps(list(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in json.loads(done.stderr.splitlines()[-1])}


@pytest.mark.parametrize("words", [("--help",), ("--version",), ("frobnicate",)], ids=str)
def test_help_and_version_import_nothing_heavy(words: tuple[str, ...]) -> None:
    assert imported(*words).isdisjoint(HEAVY)


@pytest.mark.parametrize("words", [("explain", "64x64x64"), ("layout", "boxes"), ("instructions",)], ids=str)
def test_what_needs_no_store_imports_none(words: tuple[str, ...]) -> None:
    assert imported(*words).isdisjoint(OF_STORES)


def test_an_answer_from_a_file_needs_none_of_what_opens_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    with Store.open(url) as store:
        keep_best(store)
    monkeypatch.setenv("GEMMTUNE_DB", url)
    assert imported("best", PROBLEM.shape).isdisjoint(OF_STORES)


def test_a_service_starts_without_what_searches_and_what_migrates(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    Store.open(url).close()
    code = (
        "import json, sys\n"
        "import api.server, gemmtune.serve\n"
        "from api.app import create_app\n"
        "from tuner.evidence.store import Store\n"
        f"with Store.open({url!r}) as store: create_app(store)\n"
        "print(json.dumps(list(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert modules.isdisjoint({"alembic", "optuna", "psycopg", "pyarrow", "scipy", "sklearn"})


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_the_list_of_commands_says_what_each_says_of_itself(command: Command) -> None:
    first, _, _ = (command.load().help or "").partition("\n\n")
    assert " ".join(first.split()) == command.help


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_no_command_has_options_that_only_the_shell_is_for(command: Command) -> None:
    said = CliRunner().invoke(app, [command.name, "--help"]).stdout
    assert "--help" in said
    assert "completion" not in said


@pytest.mark.parametrize("words", [("retune",), ("worker", "run")], ids=str)
def test_help_text_breaks_lines_where_the_terminal_ends(words: tuple[str, ...]) -> None:
    said = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "400", "TERMINAL_WIDTH": "400"}).stdout
    text = said.partition("Usage:")[2].partition("╭")[0].splitlines()[1:]
    assert all(line.strip().endswith(".") for line in text if line.strip()), text


def test_every_command_is_listed_in_order() -> None:
    said = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).stdout
    places = [said.find(f" {command.name} ") for command in COMMANDS]
    assert -1 not in places
    assert places == sorted(places)


def test_the_version_is_one_line() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout.split()[0], len(result.stdout.splitlines())) == (0, "gemmtune", 1)


def test_a_typing_error_gets_a_suggestion() -> None:
    result = CliRunner().invoke(app, ["expain"])
    assert result.exit_code == 2
    assert "explain" in result.output
