"""Which recording `--device auto` means on a machine without a GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from space.devices import DEFAULT_DEVICE
from space.problem import Problem
from tuner.cli.options import AUTO
from tuner.settings import settings
from tuner.studying.open_worker import driver_present, opens
from tuner.tables.recorded import recorded_bests


def word_for(device: str, problem: Problem) -> str:
    """What opens the device for a problem: without a GPU, `auto` is the recording from which it is answered."""
    if device != AUTO or driver_present():
        return device
    folder = recorded_bests(settings().recorded_dir, damaged_too=False).folder_with(problem, DEFAULT_DEVICE)
    word = f"recorded:{folder}"
    # The table may lie beside no recording.
    return word if folder and opens(word, problem, settings()) else device


def word_for_all(device: str, problems: Iterable[Problem]) -> str:
    """What opens the device for many: without a GPU, `auto` is the recording from which most of them are answered."""
    words = Counter(word for problem in problems if (word := word_for(device, problem)) != device)
    return words.most_common(1)[0][0] if words else device
