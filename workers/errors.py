"""Errors of `workers`, one tree.

    WorkerError
    ├── CacheError       a build can't be kept or read back, or there is no compiler
    ├── RecordingError   a recording is missing, damaged, or of another schema
    │   └── RecordingExists   it would be overwritten
    ├── DriverError      no driver, no such GPU, or one that our kernels can't run on
    └── ProcessError     the GPU process can't be started, or died again and again

A candidate's failure is not an error but a measurement with that outcome. Each message names the value, the
rule and the fix.
"""

from __future__ import annotations

import errno
from typing import Final

#: What makes room for a file, by the error that says that there is none.
_ROOM: Final = {
    errno.ENOSPC: "free space, or ",
    errno.EDQUOT: "free space, or ",
    errno.EFBIG: "raise the limit on the size of files (`ulimit -f`), or ",
}


def make_room_or(elsewhere: str, error: OSError) -> str:
    """What to do about a file that can't be written: `elsewhere`, after what makes room where there is none."""
    return _ROOM.get(error.errno or 0, "") + elsewhere


class WorkerError(Exception):
    """Root of the tree."""


class CacheError(WorkerError):
    """The build cache can't be written or read, or NVRTC can't be loaded."""


class RecordingError(WorkerError):
    """A recording can't be used."""


class RecordingExists(RecordingError):
    """There is a recording of that name."""


class DriverError(WorkerError):
    """The device can't be used."""


class ProcessError(WorkerError):
    """The process that owns the GPU can't be kept alive."""
