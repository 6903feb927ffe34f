"""Every command and program of the documentation runs as it is printed, or its page says what it needs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest

from benchmarks.ports import free_port
from tests.journeys.terminal import Terminal, Typed
from tests.pages import COMMANDS, ENDLESS, GPU, MINUTE, NEEDS, PAGES, PROGRAMS, ROOT, Block, blocks
from tests.recorded_store import fill
from tuner.evidence.store import Store

#: Languages of blocks that nobody types.
SHOWN = ("text", "json", "ini", "cpp")
BLOCKS = [block for page in PAGES for block in blocks(page)]
RUN = [page for page in PAGES if any(block.runs for block in blocks(page))]
#: Pages about a service that has been at work: their commands see a filled store.
AT_WORK = ("api.md", "fleet.md", "operations.md", "use.md")
#: What `make tune` runs in the environment that it sets up.
TUNE = "gemmtune tune 4096x4096x4096 --dtype bf16"
#: Files that pages speak of.
FILES = {
    "shapes.csv": "m,n,k,count\n16,2112,7168,32\n4096,4096,4096,1\n",
    "problems.json": '[{"name": "square", "m": 512, "n": 512, "k": 512, "dtype": "bf16", "layout": "nt"}]',
    "token": "none is needed here",
}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("filled") / "store.db"
    with Store.open(f"sqlite:///{path}") as store:
        fill(store, two_devices=False)
    return path


@pytest.fixture(scope="module")
def service(filled: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("service")
    url = f"http://127.0.0.1:{(port := free_port())}"
    command = [sys.executable, "-m", "gemmtune", "serve", "--port", str(port), "--db"]
    command.append(shutil.copy(filled, folder / "store.db"))
    with (
        (folder / "log").open("w") as log, httpx2.Client(base_url=url) as http,
        subprocess.Popen(command, stderr=log) as process,
    ):  # fmt: skip
        try:
            while not _ready(http):
                assert process.poll() is None, (folder / "log").read_text()
            yield url
        finally:
            process.kill()


def _ready(http: httpx2.Client) -> bool:
    try:
        return http.get("/readyz").status_code == 200
    except httpx2.TransportError:
        return False


def test_every_block_says_what_it_is() -> None:
    for block in BLOCKS:
        assert block.language, f"{block.name} is indented: put it into a fence with its language"
        assert block.language in COMMANDS + PROGRAMS + SHOWN, f"{block.name}: {block.language}"
        known = not block.mark or block.mark in (*NEEDS, ENDLESS) or re.fullmatch(r"exit code \d", block.mark)
        assert known, f"{block.name}: {block.mark}"
    assert sum(block.runs for block in BLOCKS) > 3 * sum(block.mark == GPU for block in BLOCKS)


@pytest.mark.parametrize("page", RUN, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_works_as_it_is_printed(page: Path, filled: Path, service: str, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    for name, text in FILES.items():
        (work / name).write_text(text)
    (work / "recorded").symlink_to(ROOT / "recorded")
    # Pages that tune the same compile it once.
    environment = {"GEMMTUNE_CACHE_DIR": str(filled.parent / "cache")}
    if page.name in AT_WORK:
        environment["GEMMTUNE_DB"] = str(shutil.copy(filled, tmp_path / "store.db"))
    assert_as_printed(Terminal(tmp_path, environment, service).run([block for block in blocks(page) if block.runs]))


@pytest.mark.slow
@pytest.mark.parametrize("block", [block for block in BLOCKS if block.mark == MINUTE], ids=lambda block: block.name)
def test_what_takes_a_minute_works_as_it_is_printed(block: Block, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "shapes.csv").write_text(FILES["shapes.csv"])
    assert_as_printed(Terminal(tmp_path, {}, "").run([replace(block, text=block.text.replace("make tune", TUNE))]))


def assert_as_printed(found: list[Typed]) -> None:
    failed = []
    for typed in found:
        if typed.code != typed.block.code:
            failed.append(str(typed))
        elif missing := _missing(typed.shown, typed.said):
            failed.append(f"{typed.block.name}: {typed.text}\nprinted no {missing!r}: {typed.said}")
    assert not failed, "\n\n".join(failed)


def _missing(shown: str, said: str) -> str:
    """What a page shows and a command did not print; line breaks don't count, and `…` stands for anything.

    Of a JSON document the members count, since times and numbers differ from store to store.
    """
    flat = " ".join(said.split())
    members = re.findall(r'"(\w+)":', shown)
    pieces = members or [" ".join(piece.split()) for piece in re.split("…|\n", shown)]
    return next((piece for piece in pieces if piece not in flat), "")


def test_a_page_that_takes_too_long_is_interrupted(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    page = ROOT / "docs" / "start.md"
    endless = Block(page, 1, "python", "import time\nprint('begun')\ntime.sleep(600)")
    typed = Terminal(tmp_path, {}, "", seconds=5.0).run([endless, Block(page, 5, "bash", "gemmtune tune 512x512x512")])
    assert [each.code for each in typed] == [130, 130]
    assert "begun" in str(typed[0])
    assert "not run" in str(typed[1])


def test_what_is_shown_is_looked_for() -> None:
    assert _missing('{"a": 1, "b": …}', json.dumps({"a": 2})) == "b"
    assert _missing("first  line…end\n", "first line of an\nend") == ""
    assert _missing("other\n", "first") == "other"


def test_blocks_of_a_page(tmp_path: Path) -> None:
    page = ROOT / "docs" / "start.md"
    assert {block.language for block in blocks(page)} <= {"bash", "console", "python"}
    block = Block(page, 1, "console", "$ curl -d '{\n  }' \\\n    x\n{}\n$ ls\n")
    assert block.commands() == [("curl -d '{\n  }' \\\n    x", "{}\n"), ("ls", "")]
