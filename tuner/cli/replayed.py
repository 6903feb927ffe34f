"""Which recording `--device auto` means on a machine without a GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress

from space.devices import DEFAULT_DEVICE
from space.problem import Problem
from tuner.cli.options import AUTO
from tuner.errors import TableError
from tuner.settings import settings
from tuner.studying.open_worker import driver_present, opens
from tuner.tables.recorded import recorded_bests


def word_for(device: str, problem: Problem) -> str:
    """What opens the device for a problem: without a GPU, `auto` is the recording from which it is answered."""
    if device != AUTO or driver_present():
        return device
    # A table may be damaged, or lie beside no recording.
    with suppress(TableError):
        word = f"recorded:{recorded_bests(settings().recorded_dir).folder_with(problem, DEFAULT_DEVICE)}"
        if opens(word, problem, settings()):
            return word
    return device


def word_for_all(device: str, problems: Iterable[Problem]) -> str:
    """What opens the device for many: without a GPU, `auto` is the recording from which most of them are answered."""
    words = Counter(word_for(device, problem) for problem in problems)
    return words.most_common(1)[0][0] if words else device
