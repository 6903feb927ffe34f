"""Model files: which of them a device uses."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest

from space.devices import DEFAULT_DEVICE
from tuner.prediction import files


@pytest.mark.parametrize(
    ("error", "said"),
    [(OSError(errno.EMFILE, "Too many open files"), "Too many open files"), (MemoryError(), "out of memory")],
)
def test_one_that_could_not_be_read_for_a_moment_is_read_again(
    error: Exception, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(files.SHIPPED / files.file_name(DEFAULT_DEVICE), tmp_path)
    monkeypatch.setattr(files, "SHIPPED", tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", Mock(side_effect=error))
        assert f"can't be read ({said}): " in files.model_for(DEFAULT_DEVICE).why
    assert files.model_for(DEFAULT_DEVICE).model is not None
