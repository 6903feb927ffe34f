"""Runs a benchmark as a command: what it refuses is one line and exit code 2, as wrong options are."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

import psutil

from benchmarks.waiting import all_started
from space.errors import SpaceError
from tuner.errors import TunerError
from workers.errors import WorkerError


class WrongInput(Exception):
    """A benchmark was given what it can't measure."""


#: What wrong input raises; each message names the value, the rule and the fix.
_REFUSALS = (WrongInput, SpaceError, TunerError, WorkerError)


def as_command(main: Callable[[], int | None]) -> NoReturn:
    """Ends the process as the benchmark does; a path that was given and can't be used ends it as wrong options do."""
    try:
        with _ended_whole():
            sys.exit(main())
    except _REFUSALS as refused:
        _refuse(str(refused))
    except OSError as error:
        # Another one is a defect, and its traceback says whose.
        if not any(Path(word) in (path := Path(str(error.filename)), *path.parents) for word in sys.argv[1:]):
            raise
        _refuse(f"{error.filename} can't be used ({error.strerror}): give one that is there")


@contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """Within the block, whatever is wrong with a file's content means that it is not what was asked for.

    Raises:
        WrongInput: so it is.
    """
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise WrongInput(f"{path} is not {what} ({type(error).__name__}: {error!s:.200}): give one") from error


@contextmanager
def needing_torch() -> Iterator[None]:
    """Within the block, PyTorch and what comes with it are imported; where they are not here, the process ends."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if missing.name not in ("torch", "triton"):
            raise
        _refuse(f"{missing.name} is not here, and nothing is measured without it: install the extra `torch`")


def gpu_of_torch() -> str:
    """The name of the GPU that torch runs on.

    Raises:
        WrongInput: it sees none.
    """
    import torch

    if not torch.cuda.is_available():
        raise WrongInput("torch sees no GPU here: run this on a machine with one, and with a build of PyTorch for CUDA")
    return str(torch.cuda.get_device_name())


def positive(text: str) -> int:
    """The number of an option that counts: of nothing there is no table, and some would wait for it."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is too few: give 1 or more")
    return number


@contextmanager
def _ended_whole() -> Iterator[None]:
    """Within the block, SIGTERM ends this process and all that it started at once: databases, services and workers
    would go on by themselves."""

    def stop(number: int, frame: object) -> None:
        for process in all_started():
            with suppress(psutil.Error):
                process.kill()
        os._exit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _refuse(sentence: str) -> NoReturn:
    sys.stderr.write(f"{Path(sys.argv[0]).name}: error: {sentence}\n")
    sys.exit(2)
