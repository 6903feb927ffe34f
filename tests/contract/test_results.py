"""Every published table names its inputs, and a clone of the repository has them."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks import deployed, published
from benchmarks.facts import SHOWN, digest_of
from benchmarks.model import __main__ as model
from benchmarks.published import FIELDS, RESULTS, ROOT, facts_of, program_of

TABLES = sorted(RESULTS.glob("*.md"))
_DIGEST = rf"`[0-9a-f]{{{SHOWN}}}`"
_PATH_AND_DIGEST = re.compile(rf"`([^`]+)` `([0-9a-f]{{{SHOWN}}})`")


def git(*words: str) -> str | None:
    """Output of git; None if it fails, as for a commit that a shallow clone lacks."""
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=False)
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None


@cache
def tracked() -> frozenset[str]:
    listed = git("ls-files")
    assert listed is not None
    files = listed.splitlines()
    return frozenset(files) | {str(folder) for file in files for folder in Path(file).parents}


@pytest.mark.parametrize("table", TABLES, ids=lambda path: path.stem)
def test_a_result_begins_with_its_facts(table: Path) -> None:
    facts = facts_of(table.read_text())
    assert tuple(facts)[: len(FIELDS)] == FIELDS
    assert re.fullmatch(r"`[0-9a-f]{40}`(, `[0-9a-f]{40}`)*", facts["commit"])
    assert re.fullmatch(rf"\w+ {_DIGEST}(, \w+ {_DIGEST})*", facts["kernels"])
    assert re.fullmatch(rf"`[^`]+\.npz` {_DIGEST}(, `[^`]+\.npz` {_DIGEST})*", facts["model"])
    assert facts["data"].startswith("none ") or _PATH_AND_DIGEST.match(facts["data"])
    assert bool(facts["device"] == "none") == bool(facts["driver"] == "none")
    # Compiling uses no GPU, also on a machine that has one.
    assert re.search("_h[12]00", table.stem) or table.stem.startswith("compile_space") or facts["device"] == "none"


@pytest.mark.parametrize("table", TABLES, ids=lambda path: path.stem)
def test_a_result_can_be_printed_again(table: Path) -> None:
    facts = facts_of(table.read_text())
    commands = re.findall("`([^`]+)`", facts["command"])
    assert commands
    for words in map(shlex.split, commands):
        assert words[:2] == ["python", "-m"]
        module = words[2].replace(".", "/")
        assert {f"{module}.py", f"{module}/__main__.py"} & tracked(), f"{words[2]} is no module of this repository"
        # What the command itself made; of what was there before, `published.py` asks that it is tracked.
        made = {word for option, word in pairwise(words) if option in ("--db", "--json")}
        named = [word for word in words[3:] if re.search(r"/|\.(json|db|parquet|md|png)$", word) and word not in made]
        assert not [word for word in named if word not in tracked()]
    assert not [path for path, _ in _PATH_AND_DIGEST.findall(facts["data"]) if path not in tracked()]


@pytest.mark.parametrize("table", TABLES, ids=lambda path: path.stem)
def test_digests_are_those_of_the_commit(table: Path, tmp_path: Path) -> None:
    facts = facts_of(table.read_text())
    commits = re.findall(r"[0-9a-f]{40}", facts["commit"])
    if any(git("cat-file", "-e", f"{one}^{{commit}}") is None for one in commits):
        pytest.skip("a shallow clone lacks this table's commit")
    # Parts of one table may come from several commits, if the program is the same in all or the table names each.
    programs = re.findall(_DIGEST, facts.get("program", program_of(commits[0])))
    assert {program_of(one) for one in commits} == set(programs)
    assert len(programs) == 1 or "--programs" in facts["command"]
    parts_of_it = facts["command"].partition("--merge")[2].split()
    for path, digest in _PATH_AND_DIGEST.findall(f"{facts['model']}, {facts['data']}"):
        # Programs of one table may have had several models.
        held = [held_at(commit, path, tmp_path, path in parts_of_it) for commit in commits]
        assert any(digest_of(each).startswith(digest) for each in held), f"{path} has digest {digest} at no commit"


def held_at(commit: str, path: str, folder: Path, added: bool) -> Path:
    """A file or folder as a commit holds it. A list that was added after its table is taken in its current form, and so
    are parts, which the commit could not yet hold."""
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", commit, path], capture_output=True, check=False)
    if added or archive.returncode:
        return ROOT / path
    (at := folder / commit).mkdir(exist_ok=True)
    subprocess.run(["tar", "-x", "-C", str(at)], input=archive.stdout, check=True)
    return at / path


@pytest.mark.parametrize("name", ["deployed_h100", "deployed_h200", "deployed_long_h200", "model_h100"])
def test_a_joined_table_is_printed_again_byte_for_byte(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed, again = RESULTS / f"{name}.md", tmp_path / "again.md"
    words = shlex.split(facts_of(printed.read_text())["command"].strip("`"))
    monkeypatch.setattr(sys, "argv", words[2:])
    monkeypatch.chdir(ROOT)
    # Whatever the state of this tree; and what is there stays.
    monkeypatch.setattr(published, "_publishable", lambda out: again)
    module = words[2].removeprefix("benchmarks.")
    assert {"deployed": deployed.main, "model": model.main}[module]() == 0
    assert again.read_bytes() == printed.read_bytes()


def test_parts_are_joined_without_torch() -> None:
    loaded = "import sys, benchmarks.deployed, benchmarks.model.__main__; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", loaded], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_page_links_every_result() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    linked = {name for page in pages for name in re.findall(r"benchmarks/results/([\w.]+\.md)", page.read_text())}
    unlinked = sorted({table.name for table in TABLES} - linked)
    assert not unlinked, f"link {', '.join(unlinked)} from the page that states its fact, or delete it"


def test_every_linked_result_exists() -> None:
    texts = {path: (ROOT / path).read_text() for path in tracked() if path.endswith((".md", ".py"))}
    named = {(path, name) for path, text in texts.items() for name in re.findall(r"benchmarks/results/([\w.]+)", text)}
    examples = {"F.md"}
    lost = {(path, name) for path, name in named if f"benchmarks/results/{name.rstrip('.')}" not in tracked()}
    assert {(path, name) for path, name in lost if name not in examples and not path.startswith("benchmarks/")} == set()
