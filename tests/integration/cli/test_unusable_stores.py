"""Commands on a store whose disk is full, or that this user may not read: one sentence, code 5, and no answer."""

from __future__ import annotations

import ctypes
import os
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.shell import Shell
from tests.support import PROBLEM, keep_best
from tuner.evidence.store import Store

#: prctl(2) and capabilities(7): root reads and writes any file without these rights.
_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH = 24, 1, 2
COMMANDS = (
    ("best", PROBLEM.shape),
    ("best", "640x640x640"),
    ("best", PROBLEM.shape, "--rivals"),
    ("tune", PROBLEM.shape, "--device", "recorded:h200"),
    ("campaign", "create", "--ladder", "m=1 n=8 k=8"),
)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("unusable") / "store.db"
    with Store.open(f"sqlite:///{path}") as store:
        keep_best(store)
    return path


def no_space() -> None:
    """No byte can be written to any file, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def no_rights() -> None:
    """Root is bound by the rights of files, as other users are."""
    libc = ctypes.CDLL(None)
    for right in (_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH):
        libc.prctl(_PR_CAPBSET_DROP, right)


def ran(
    words: tuple[str, ...], store: Path, before: Callable[[], None], **more: str
) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GEMMTUNE_")}
    environment = kept | {"GEMMTUNE_DB": str(store), "GEMMTUNE_CACHE_DIR": str(store.parent / "cache"),
                          "PYTHONDONTWRITEBYTECODE": "1", **more}  # fmt: skip
    return subprocess.run([sys.executable, "-m", "gemmtune", *words], env=environment, preexec_fn=before,
                          capture_output=True, text=True, check=False)  # fmt: skip


def is_one_sentence(done: subprocess.CompletedProcess[str], fix: str) -> None:
    assert done.returncode == 5, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert fix in done.stderr


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_full_disk_is_one_sentence_and_no_answer(kept: Path, words: tuple[str, ...]) -> None:
    before = kept.read_bytes()
    is_one_sentence(ran(words, kept, no_space), "see what ends the file (quota, `ulimit -f`, disk)")
    assert kept.read_bytes() == before


def test_a_store_that_may_not_be_read_is_one_sentence_and_no_answer(kept: Path) -> None:
    kept.chmod(0)
    try:
        is_one_sentence(ran(("best", "640x640x640"), kept, no_rights), "make the file and its folder writable")
    finally:
        kept.chmod(0o600)


@pytest.mark.parametrize("words", [*COMMANDS, ("token", "list")], ids=" ".join)
def test_a_store_in_a_folder_that_may_not_be_entered_is_one_sentence(tmp_path: Path, words: tuple[str, ...]) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(0)
    try:
        done = ran(words, closed / "store.db", no_rights)
    finally:
        closed.chmod(0o700)
    is_one_sentence(done, f"{closed}/store.db can't be opened (Permission denied): give another path with --db")


@pytest.mark.parametrize("words", [*COMMANDS, ("migrate",), ("backup", "copy.gz"), ("campaign", "list")], ids=" ".join)
def test_a_database_of_another_program_is_refused_and_stays_as_it_is(tmp_path: Path, words: tuple[str, ...]) -> None:
    theirs = tmp_path / "notes.db"
    with closing(sqlite3.connect(theirs)) as connection:
        connection.execute("CREATE TABLE notes (line TEXT)")
    before = theirs.read_bytes()
    is_one_sentence(ran(words, theirs, lambda: None), "another program, with the table notes, not a gemmtune store")
    assert theirs.read_bytes() == before
    assert list(tmp_path.iterdir()) == [theirs]


def test_doctor_names_the_cache_and_the_store_in_a_home_that_may_not_be_entered(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(0)
    try:
        # Reading all recordings that ship takes seconds.
        none = {"GEMMTUNE_RECORDED_DIR": str(tmp_path)}
        done = ran(("doctor",), closed / "home" / "store.db", no_rights, **none)
    finally:
        closed.chmod(0o700)
    assert (done.returncode, done.stderr) == (1, "")
    assert f"cache       {closed}/home/cache can't be written (Permission denied)" in done.stdout
    assert "store.db can't be opened (Permission denied)" in done.stdout


@pytest.mark.parametrize("words", [("best", "640x640x640"), ("ladder", "640x640", "--m", "16")])
def test_without_a_store_answers_come_from_elsewhere_as_documented(tmp_path: Path, words: tuple[str, ...]) -> None:
    shell, missing = Shell(tmp_path, {"GEMMTUNE_DB": str(tmp_path / "none.db")}), str(tmp_path / "none.db")
    assert "predicted" in shell(*words).out
    named = shell(*words, "--db", missing)
    assert (named.code, named.out) == (5, "")
    assert "none.db is not there" in named.sentence
    page = (Path(__file__).resolve().parents[3] / "docs" / "troubleshooting.md").read_text()
    assert "Without `--db`, plain `best` and `ladder` answer from the recordings and the model instead" in page


def test_a_migration_makes_no_store_where_none_is(tmp_path: Path) -> None:
    missing = tmp_path / "mistyped.db"
    is_one_sentence(ran(("migrate",), missing, lambda: None), f"{missing} is not there")
    assert not missing.exists()
