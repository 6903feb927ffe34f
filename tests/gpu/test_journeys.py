"""The five users' walks on a GPU, and every block of the documentation that needs one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from tests.journeys.terminal import Terminal
from tests.journeys.test_pages import FILES
from tests.journeys.walking import walk
from tests.pages import GPU, PAGES, ROOT, blocks
from tests.shell import Shell
from tuner.evidence.store import Store
from tuner.studying.open_worker import driver_present

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not driver_present(), reason="no device")]
WALKS = sorted((ROOT / "tests" / "journeys" / "walks_on_gpu").glob("*.txt"))
#: Longest time of a page's blocks, in seconds. On an H200 they end within about 40.
PAGE_SECONDS = 150
NEEDY = [page for page in PAGES if any(block.mark == GPU for block in blocks(page))]


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    return Shell(tmp_path_factory.mktemp("journeys"))


@pytest.fixture(scope="module")
def service(shell: Shell) -> Iterator[TestClient]:
    url = f"sqlite:///{shell.home}/.local/share/gemmtune/gemmtune.db"
    with Store.open(url) as store, TestClient(create_app(store)) as http:
        yield http


@pytest.mark.parametrize("path", WALKS, ids=lambda path: path.stem)
def test_a_walk(shell: Shell, service: TestClient, path: Path) -> None:
    walk(path.read_text(), shell, service)


@pytest.mark.parametrize("page", NEEDY, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_works_as_it_is_printed(shell: Shell, page: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    for name, text in FILES.items():
        (work / name).write_text(text)
    # Later pages speak of what earlier ones have tuned.
    environment = {
        "GEMMTUNE_DB": str(shell.home / "pages.db"), "GEMMTUNE_CACHE_DIR": str(shell.home / ".cache" / "gemmtune"),
    }  # fmt: skip
    asked = [block for block in blocks(page) if block.mark == GPU]
    typed = Terminal(tmp_path, environment, "http://127.0.0.1:9", PAGE_SECONDS).run(asked)
    assert not (failed := [str(each) for each in typed if each.code]), "\n\n".join(failed)
