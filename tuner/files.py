"""Files that appear complete or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import IO, Final

from tuner.errors import ExportError
from workers.errors import make_room_or

_DEVICES: Final = Path("/dev")


def is_folder(path: Path) -> bool:
    """Whether a path is a folder that can be seen; opening any other one says why it can't be."""
    try:
        return path.is_dir()
    except OSError:
        return False


def is_endless(path: Path) -> bool:
    """Whether a path names a pipe or a device: reading one may wait forever, and a second time gives other bytes."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False  # opening it says why
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def is_database(path: Path) -> bool:
    """Whether a file is SQLite's, and so perhaps a store.

    SQLite itself looks: if this process closed the file, the system would drop the locks that its open stores hold on
    it (POSIX advisory locks), and another process that closes the store would delete its log.
    """
    try:
        if is_endless(path) or path.stat().st_size == 0:
            return False
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
            connection.execute("PRAGMA schema_version").fetchone()
    except (sqlite3.Error, OSError, ValueError):
        return False
    return True


@contextmanager
def whole_file(path: Path, mode: int = 0o644, replace: bool = True) -> Iterator[IO[bytes]]:
    """Writes a file that takes the place of `path` when the block succeeds, and leaves `path` untouched when it fails.

    Args:
        path: its folder is created.
        mode: permission bits.
        replace: a file that exists by then; if not, that one stays.

    Raises:
        FileExistsError: it exists, and isn't to be replaced.
        OSError: it can't be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, partial = tempfile.mkstemp(dir=path.parent, suffix=".partial")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(partial, mode)
        if replace or not _linked(partial, path):
            os.replace(partial, path)
    finally:
        Path(partial).unlink(missing_ok=True)


def _linked(partial: str, path: Path) -> bool:
    """Gives a file a second name that nothing has; False on a file system without such links.

    Raises:
        FileExistsError: something has that name.
    """
    try:
        os.link(partial, path)
    except OSError:
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        return False
    return True


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file as `whole_file` does.

    Raises:
        OSError: it can't be written.
    """
    with whole_file(path) as file:
        file.write(content)


def export_file(path: Path, content: bytes) -> None:
    """Writes a file that a user asked for, as `whole_file` does.

    Raises:
        ExportError: it can't be written.
    """
    export_files({path: content})


def check_exportable(path: Path) -> None:
    """Checks that a file can be written there; creates its folder.

    Raises:
        ExportError: it can't.
    """
    _check_replaceable(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise _unwritable(path, error) from error


def export_files(files: Mapping[Path, bytes]) -> None:
    """Writes files that a user asked for, as `whole_file` does: none of them if one has no space.

    Raises:
        ExportError: one can't be written.
    """
    for path in files:
        _check_replaceable(path)
    path = next(iter(files))
    try:
        with ExitStack() as complete:
            for path, content in files.items():
                file = complete.enter_context(whole_file(path))
                file.write(content)
                # Before the first one takes its place, which all do at the end.
                file.flush()
    except OSError as error:
        raise _unwritable(path, error) from error


def _check_replaceable(path: Path) -> None:
    """Refuses what a file would take the place of for good: as root, that of a device of the whole machine.

    Raises:
        ExportError: the path is a folder, a pipe, a device or a database, means standard output, or begins in a folder
            that is gone.
    """
    if str(path) == "-":
        raise ExportError("'-' is no file: an export appears complete or not at all, so name a file, and read it then")
    if is_folder(path):
        raise ExportError(f"{path} is a folder: name a file in it")
    try:
        whole = path.absolute()
    except FileNotFoundError as error:
        raise ExportError(f"{path}: the folder that this command runs in is gone: go to another one") from error
    # A link there, as /dev/stdout, may name a file.
    if is_endless(path) or whole.parent == _DEVICES:
        raise ExportError(f"{path} is a pipe or a device, and would be replaced by a file: name a file")
    if is_database(path):
        raise ExportError(f"{path} is a database, perhaps a store, which a file would replace: choose another path")


def _unwritable(path: Path, error: OSError) -> ExportError:
    fix = make_room_or("choose another path", error)
    return ExportError(f"{path} can't be written ({error.strerror}): {fix}")


def export_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """Writes a folder that appears complete or not at all.

    Args:
        path: must not exist, or be empty.
        files: contents by path in the folder.

    Raises:
        ExportError: it exists, or can't be written.
    """
    try:
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise ExportError(f"{path} exists: an export replaces no folder; delete it or give another path")
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial"))
        try:
            for name, content in files.items():
                write_whole(partial / name, content)
            partial.chmod(0o755)
            os.replace(partial, path)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise _unwritable(path, error) from error
