"""The documentation: links lead somewhere, commands exist, the start page works, and the site builds strictly."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from docs import reference, site
from gemmtune.command import COMMANDS, app
from tests.shell import Shell
from tuner.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BY_NAME = {command.name: command for command in COMMANDS}
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_COMMAND = re.compile(r"^(?:    |\$ |)(?:\$ )?(gemmtune (?!:)[a-z].*?)(?:\s+#.*| &)?$", re.MULTILINE)


def blocks(text: str) -> str:
    """The indented and fenced lines of a page, which hold what a reader types."""
    fenced = "\n".join(re.findall(r"^```(?:bash|sh)?\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    return fenced + "\n" + "\n".join(line for line in text.splitlines() if line.startswith("    "))


def typed(page: Path) -> list[str]:
    """The commands of a page, each in one line."""
    lines = blocks(page.read_text()).replace("\\\n", " ")
    return [found for found in _COMMAND.findall(lines) if "…" not in found]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in _LINK.findall(re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)):
        if not link.startswith(("http:", "https:", "#", "mailto:")):
            target = (page.parent / link.partition("#")[0]).resolve()
            assert target.exists(), f"{page.name}: {link}"


@pytest.mark.parametrize(
    ("page", "line"), [(page, line) for page in PAGES for line in typed(page)], ids=lambda value: str(value)[-70:]
)
def test_every_command_and_option_exists(page: Path, line: str) -> None:
    _, name, *words = shlex.split(line)
    command: Any = BY_NAME[name].load() if name in BY_NAME else get_command(app)
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    options = {word for parameter in command.params for word in [*parameter.opts, *parameter.secondary_opts]}
    given = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
    assert given <= options | {"--help", "--version"}, f"{page.name}: {line}"


def test_every_setting_that_a_page_names_exists() -> None:
    for page in PAGES:
        for name in re.findall(r"\bGEMMTUNE_([A-Z_]+[A-Z])\b", page.read_text()):
            known = name.lower() in Settings.model_fields or name in ("PUBLISH", "BIND", "SERVICE", "DB_PASSWORD")
            assert known or name.endswith("_IMAGE"), f"{page.name}: GEMMTUNE_{name}"


def test_the_start_page_works_as_it_is_printed(tmp_path: Path) -> None:
    """Its commands, but those that need a GPU, a wheel or a network."""
    shell, page = Shell(tmp_path), ROOT / "docs" / "start.md"
    lines = [line for line in typed(page) if "cuda:0" not in line and line.split()[1] not in ("serve", "doctor")]
    assert len(lines) >= 4
    for line in lines:
        ran = shell(*shlex.split(line)[1:])
        assert ran.code == (1 if " explain " in line else 0), ran.err
    assert ran.out.startswith("measured: ")


def test_the_start_page_takes_three_minutes() -> None:
    words = re.findall(r"\w+", (ROOT / "docs" / "start.md").read_text())
    assert len(words) <= 3 * 200


def test_no_cell_of_a_table_is_longer_than_a_paragraph() -> None:
    for page in PAGES:
        for line in page.read_text().splitlines():
            if line.startswith("|"):
                # Names of tests and commands don't count as prose.
                prose = re.sub(r"`[^`]*`", "", line)
                assert max(map(len, prose.split(" | "))) <= 400, f"{page.name}: {line[:80]}"


def test_reference_pages_name_every_command_setting_and_route() -> None:
    pages = reference.pages()
    assert all(f"## gemmtune {command.name}" in pages["commands.md"] for command in COMMANDS)
    assert all(f"`GEMMTUNE_{name.upper()}`" in pages["settings.md"] for name in Settings.model_fields)
    assert "## GET /v1/best" in pages["routes.md"]
    assert "| 130 | interrupted; the same command resumes |" in pages["commands.md"]


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r"'(docs/[\w/.-]+\.md)'", f"{site.NAVIGATION}{site._left_over()}")
    there = {str(page.relative_to(ROOT)) for page in PAGES if page.parent.name == "docs"}
    assert there <= set(listed), there - set(listed)
    assert len(set(listed)) == len(listed)


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("material")
    assert site.build(tmp_path / "site") == 0
    assert (tmp_path / "site" / "docs" / "start" / "index.html").exists()
