"""The documentation: links lead somewhere, commands exist, the start page works, and the site builds strictly."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from docs import reference, site
from gemmtune.command import COMMANDS
from space.devices import profile_named
from space.enumerate import enumerate_space
from space.family import family_named
from space.kinds.gemm import DTYPES, EPILOGUE_PARTS, Gemm
from tests.pages import COMMANDS as SHELLS
from tests.pages import PAGES, ROOT, blocks
from tuner import exits
from tuner.answering.answers import Source
from tuner.cli.record import read_problems
from tuner.settings import Settings
from tuner.tables.problems import COLUMNS

BY_NAME = {command.name: command for command in COMMANDS}
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_INLINE = re.compile(r"`(gemmtune [a-z][^`]*|(?:python|make) [^`]*)`")
#: Words of a page that stand for a reader's own.
_OWN = re.compile(r"^[A-Z_]+$|…")


def typed(page: Path) -> list[str]:
    """The commands of a page, of its blocks and within its sentences, each in one line."""
    code = [command for block in blocks(page) if block.language in SHELLS for command, _ in block.commands()]
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    return [" ".join(one.replace("\\\n", " ").split()) for one in [*code, *_INLINE.findall(prose)]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in _LINK.findall(re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)):
        if not link.startswith(("http:", "https:", "mailto:")):
            file, _, heading = link.partition("#")
            target = (page.parent / file).resolve() if file else page
            assert target.exists(), f"{page.name}: {link}"
            assert not heading or heading in anchors(target), f"{page.name}: {link}"


def anchors(page: Path) -> set[str]:
    """What links to a page's headings end with."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_and_option_exists(page: Path) -> None:
    for line in typed(page):
        words = shlex.split(line, comments=True)
        if words[:1] == ["gemmtune"] and len(words) > 1 and not _OWN.search(words[1]):
            _check_command(line, words[1], words[2:])
        elif words[:2] == ["python", "-m"] and words[2].startswith(("benchmarks", "docs")):
            module = ROOT / words[2].replace(".", "/")
            assert module.with_suffix(".py").exists() or (module / "__main__.py").exists(), line
        elif words[:1] == ["make"]:
            assert words[1].startswith(".") or f"\n{words[1]}:" in (ROOT / "Makefile").read_text(), line


def _check_command(line: str, name: str, words: list[str]) -> None:
    if name.startswith("-"):
        assert name == "--version", line
        return
    assert name in BY_NAME, line
    command: Any = BY_NAME[name].load()
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    options = {word for parameter in command.params for word in [*parameter.opts, *parameter.secondary_opts]}
    given = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
    assert given <= options | {"--help"}, line


def test_every_setting_that_a_page_names_exists() -> None:
    for page in PAGES:
        for name in re.findall(r"\bGEMMTUNE_([A-Z_]+[A-Z])\b", page.read_text()):
            known = name.lower() in Settings.model_fields or name in ("PUBLISH", "BIND", "SERVICE", "DB_PASSWORD")
            assert known or name.endswith("_IMAGE"), f"{page.name}: GEMMTUNE_{name}"


def test_every_setting_is_on_a_page_and_defaults_are_as_told() -> None:
    pages = [page.read_text() for page in PAGES]
    named = {name.lower() for page in pages for name in re.findall(r"\bGEMMTUNE_([A-Z_]+[A-Z])\b", page)}
    assert Settings.model_fields.keys() <= named
    told = re.findall(r"^\| `GEMMTUNE_(\w+)` \| `([^`]+)` \|", "\n".join(pages), re.MULTILINE)
    assert told == [(name, str(Settings.model_fields[name.lower()].default)) for name, _ in told]
    assert told


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


def test_troubleshooting_lists_the_exit_codes_of_every_command() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    assert set(re.findall(r"^\| (\d+) \| ", page, re.MULTILINE)) == set(re.findall(r"^\d+", exits.__doc__ or "", re.M))


def test_every_error_that_troubleshooting_explains_is_said_somewhere() -> None:
    said = [text for path in sources() for text in sentences(path)]
    page = (ROOT / "docs" / "troubleshooting.md").read_text().partition("## Errors")[2].partition("## Questions")[0]
    shown = re.findall(r"^\| `(.+?)` \|", page, re.MULTILINE)
    assert len(shown) >= 10
    for sentence in shown:
        pieces = [piece.strip() for piece in sentence.split("…") if piece.strip()]
        pattern = re.compile(".*".join(map(re.escape, pieces)))
        # Most texts lack the first piece, which is found sooner than the pattern.
        assert any(pieces[0] in text and pattern.search(text) for text in said), sentence


def sources() -> list[Path]:
    return [path for room in ("api", "gemmtune", "space", "tuner", "workers") for path in (ROOT / room).rglob("*.py")]


def sentences(path: Path) -> Iterator[str]:
    """Every string of a file on one line, without backquotes; `…` stands for what is filled in."""
    for node in ast.walk(ast.parse(path.read_text())):
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        text = "".join(part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else "…"
                       for part in parts)  # fmt: skip
        yield " ".join(text.replace("`", "").split())


def test_the_list_that_contributors_record_can_be_read(tmp_path: Path) -> None:
    (shown,) = (block.text for block in blocks(ROOT / "docs" / "contribute-a-card.md") if block.language == "json")
    (tmp_path / "problems.json").write_text(shown)
    assert [name for name, _ in read_problems(tmp_path / "problems.json")] == ["square", "few rows"]


def test_the_comparison_has_every_tool() -> None:
    page = (ROOT / "docs" / "comparison.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ")][2:]
    named = {re.sub(r" *[`(].*", "", row.split(" | ")[0].strip("| ")) for row in rows}
    assert named == {"cuBLASLt", "CUTLASS profiler", "nvMatmulHeuristics", "Triton", "Helion", "PyTorch Inductor",
                     "Kernel Tuner", "TunableOp"}  # fmt: skip
    # Each says when to choose the tool, and what gemmtune adds or lacks.
    assert all(len(cell) > 20 for row in rows for cell in row.strip("| ").split(" | ")[1:])


def test_the_files_page_has_every_column() -> None:
    page = (ROOT / "docs" / "files.md").read_text()
    lists, _, exported = page.partition("## A table")
    problem = {"m", "n", "k", "dtype", "layout", "batch", "epilogue"}
    assert columns_in(lists.partition("## A campaign")[2]) == problem | {"count"}
    assert columns_in(exported.partition("## A recording")[0]) == problem | {"kind", *COLUMNS}


def test_the_files_page_has_every_dtype_and_part_of_an_epilogue() -> None:
    words = (ROOT / "docs" / "files.md").read_text().partition("## The words")[2].partition("## A campaign")[0]
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (\w+) \| (\w+) \| (\w+) \|$", words, re.MULTILINE)
    assert {name: tuple(dtypes) for name, *dtypes in rows} == DTYPES
    assert set(re.findall(r"`(\w+)`", words.partition("An `epilogue`")[2])) == {"none", *EPILOGUE_PARTS}


def columns_in(text: str) -> set[str]:
    """Names in the first column of a section's table."""
    return set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", text, re.MULTILINE))))


def test_walks_of_contributing_are_on_commits_of_this_repository() -> None:
    shown = re.findall(r"`git show ([0-9a-f]{7})(?: -- ([^`]+))?`", (ROOT / "CONTRIBUTING.md").read_text())
    assert len(shown) == 4
    for commit, paths in shown:
        command = ["git", "-C", str(ROOT), "show", "--stat", "--format=", commit, "--", *paths.split()]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if "unknown revision" in done.stderr or "bad object" in done.stderr:
            pytest.skip("a shallow clone lacks it")
        assert done.stdout.strip(), (commit, done.stderr)


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r"'((?:docs/[\w/.-]+|\w+)\.md)'", str(site.NAVIGATION))
    made = {f"docs/reference/{name}" for name in reference.pages()}
    assert set(listed) == {str(page.relative_to(ROOT)) for page in PAGES} | made
    assert len(set(listed)) == len(listed)


def test_pages_count_the_space_as_it_is() -> None:
    counted = enumerate_space(family_named("sm90_wgmma"), Gemm.of(4096, 4096, 4096), profile_named("h200"))
    api, house = ((ROOT / "docs" / name).read_text() for name in ("api.md", "architecture.md"))
    assert set(re.findall(r'"product":(\d+)|"product","count":(\d+)', api)) == {
        (str(counted.total), ""), ("", str(counted.total))
    }  # fmt: skip
    assert set(re.findall(r'"worth"(?:,"count")?:(\d+)', api)) == {str(counted.count)}
    become = f"{counted.total // 10**12} trillion configs become {counted.count:,} worth trying"
    assert become in " ".join(house.split())


def test_every_log_line_is_explained() -> None:
    """Those with words of their own; a placeholder is shown as `…`."""
    page = (ROOT / "docs" / "operations.md").read_text()
    shown = set(re.findall(r"^\| `([^`]+)` \|", page.partition("## Log lines")[2], re.MULTILINE))
    logged = {
        re.sub(r"%\w", "…", str(node.args[0].value))
        for folder in ("api", "tuner/fleet", "tuner/evidence") for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("_log.") and node.args
        and isinstance(node.args[0], ast.Constant)
    }  # fmt: skip
    # What a sweep changed is told with its count.
    counted = {
        f"{node.value.elts[0].value}: …"
        for node in ast.walk(ast.parse((ROOT / "tuner/fleet/campaigns/sweep.py").read_text()))
        if isinstance(node, ast.Yield) and isinstance(node.value, ast.Tuple)
        and isinstance(node.value.elts[0], ast.Constant)
    }  # fmt: skip
    assert len(counted) > 5
    assert {line for line in logged if re.search("[a-z]{2}", line)} | {"request"} | counted == shown


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("material")
    assert site.build(tmp_path / "site") == 0
    assert (tmp_path / "site" / "docs" / "start" / "index.html").exists()


def test_the_sources_of_answers_are_explained_each() -> None:
    told = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "concepts.md").read_text(), re.MULTILINE)
    assert tuple(told) == get_args(Source)
