"""Files on a disk that fills while they are written: what was there stays, and nothing half-written is left."""

from __future__ import annotations

import errno
import os
import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import keep_best
from tuner.errors import ExportError, StoreError
from tuner.evidence.store import Store
from tuner.files import export_file, export_files, export_folder

SPACE = 1_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store:
        keep_best(store)
        store.bests()
        yield store


@pytest.fixture
def folder(tmp_path: Path, store: Store) -> Path:
    (made := tmp_path / "out").mkdir()
    return made


@contextmanager
def little_space() -> Iterator[None]:
    """No file can grow beyond `SPACE` bytes, not even the one that a run's output goes to."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SPACE, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("first", [b"", b"x" * SPACE], ids=["empty", "as large as it fits"])
def test_of_several_files_none_is_written_if_one_has_no_space(folder: Path, first: bytes) -> None:
    (folder / "t0.csv").write_bytes(b"before")
    files = {folder / "t0.csv": first, folder / "t1.csv": b"x" * (SPACE + 1), folder / "t2.csv": b"x"}
    with little_space(), pytest.raises(ExportError, match=r"t1\.csv can't be written \(File too large\): raise"):
        export_files(files)
    assert [(path.name, path.read_bytes()) for path in folder.iterdir()] == [("t0.csv", b"before")]
    export_files({path: content[:SPACE] for path, content in files.items()})
    assert {path: path.read_bytes() for path in folder.iterdir()} == {
        path: content[:SPACE] for path, content in files.items()
    }


def test_of_several_files_none_is_written_if_one_is_a_folder(folder: Path) -> None:
    (folder / "t1.csv").mkdir()
    with pytest.raises(ExportError, match=r"t1\.csv is a folder: name a file in it"):
        export_files({folder / "t0.csv": b"x", folder / "t1.csv": b"x"})
    assert [path.name for path in folder.iterdir()] == ["t1.csv"]


def test_no_file_replaces_a_store_or_a_pipe_or_a_device(folder: Path, tmp_path: Path, store: Store) -> None:
    os.mkfifo(folder / "pipe")
    for path, said in (
        (tmp_path / "store.db", "is a database, perhaps a store"), (folder / "pipe", "is a pipe or a device"),
        (Path("/dev/gemmtune-nothing"), "is a pipe or a device"),
    ):  # fmt: skip
        with pytest.raises(ExportError, match=f"{path} {said}"):
            export_files({folder / "t0.csv": b"x", path: b"x"})
    assert ([path.name for path in folder.iterdir()], (folder / "pipe").is_fifo()) == (["pipe"], True)
    assert len(store.bests()) == 1


@pytest.mark.usefixtures("in_a_folder_that_is_gone")
def test_a_file_in_a_folder_that_is_gone_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"table\.json: the folder that this command runs in is gone"):
        export_file(Path("table.json"), b"")
    export_file(tmp_path / "table.json", b"")


def test_standard_output_is_no_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(ExportError, match=r"'-' is no file: .* name a file"):
        export_file(Path("-"), b"x")
    assert not list(folder.iterdir())


def test_a_file_and_a_folder_without_space_leave_nothing(folder: Path) -> None:
    with little_space(), pytest.raises(ExportError, match="raise the limit on the size of files"):
        export_file(folder / "t.json", b"x" * (SPACE + 1))
    with little_space(), pytest.raises(ExportError, match="raise the limit on the size of files"):
        export_folder(folder / "bundle", {"a": b"x", "b/c": b"x" * (SPACE + 1)})
    assert not list(folder.iterdir())


def test_a_backup_without_space_leaves_nothing(folder: Path, store: Store) -> None:
    with little_space(), pytest.raises(StoreError, match=r"b\.gz can't be written \(File too large\): raise the limit"):
        store.backup(folder / "b.gz")
    assert not list(folder.iterdir())


@pytest.mark.parametrize(("number", "fix"), [
    (errno.EROFS, "choose another"), (errno.EACCES, "choose another"), (errno.ENOSPC, "free space, or choose another"),
])  # fmt: skip
def test_only_where_there_is_no_room_space_is_to_be_freed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, number: int, fix: str
) -> None:
    def refused(**_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(tempfile, "mkstemp", refused)
    with pytest.raises(ExportError, match=rf"can't be written \({os.strerror(number)}\): {fix}"):
        export_file(folder / "t.json", b"x")
