"""The pace of a power-limited GPU: its anchor corrects all times."""

from __future__ import annotations

import pytest

from workers.cuda import pace


class Anchor:
    """Takes a graph's place; `samples` are what its replays will take."""

    launches = 3

    def __init__(self, *samples: float) -> None:
        self._samples, self._started = list(samples), 0

    def start(self, stream: object, replays: int) -> None:
        self._started += replays

    def samples_us(self) -> tuple[float, ...]:
        taken = tuple(self._samples[: self._started])
        del self._samples[: self._started]
        self._started = 0
        return taken


def test_times_are_told_at_the_clock_that_the_heat_up_ended_with() -> None:
    made = pace.Pace.of(Anchor(80.0, 81.0, 200.0, 110.0), [60.0, 70.0, 80.0, 90.0, 99.0, 100.0, 101.0, 100.0])
    assert made.settled_us == 100.5
    made.start(None)
    made.start(None)
    # A rested GPU: the anchor takes 80 instead of 100.5 µs, and the candidate in between is as fast.
    assert made.taken() == pace.Beside(pytest.approx(100.5 / 80), True, 161.0 * Anchor.launches)
    made.start(None)
    made.start(None)
    # One of the two was held up: the other one is believed, and said not to be sure.
    assert made.taken() == pace.Beside(pytest.approx(100.5 / 110), False, 310.0 * Anchor.launches)


def test_the_end_of_a_brief_heat_up_is_its_last_sample() -> None:
    assert pace.Pace.of(Anchor(), [50.0, 60.0]).settled_us == 60.0
