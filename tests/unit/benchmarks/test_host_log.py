"""Host log: shares of a thread's time, and the GPU's idle part of each."""

from __future__ import annotations

from itertools import pairwise

import pytest

from benchmarks.host_log import REST, HostLog, idle_within, shares


class Kitchen:
    def cook(self) -> str:
        return self.stir()

    def stir(self) -> str:
        return "soup"

    def burn(self) -> str:
        raise ValueError("smoke")


def watched() -> tuple[HostLog, Kitchen]:
    class Watched(Kitchen):
        pass

    log = HostLog()
    for name in ("cook", "stir", "burn"):
        log.watch(Watched, name, name)
    return log, Watched()


def test_each_moment_belongs_to_the_innermost_function() -> None:
    log, kitchen = watched()
    assert kitchen.cook() == "soup"
    spans = log.taken()
    assert [label for label, _, _ in spans] == [REST, "cook", "stir", "cook", REST]
    assert all(end == begin for (_, _, end), (_, begin, _) in pairwise(spans))
    assert [label for label, _, _ in log.taken()] == [REST]


def test_a_function_that_raises_ends_too() -> None:
    log, kitchen = watched()
    with pytest.raises(ValueError, match="smoke"):
        kitchen.burn()
    assert [label for label, _, _ in log.taken()] == [REST, "burn", REST]


@pytest.mark.parametrize(
    ("busy", "idle"),
    [
        ([], [(2.0, 10.0)]),
        ([(0.0, 20.0)], []),
        ([(0.0, 1.0), (15.0, 20.0)], [(2.0, 10.0)]),
        # In any order, one inside the other, across both ends of the window.
        ([(5.0, 9.0), (1.0, 3.0), (6.0, 7.0), (9.5, 12.0)], [(3.0, 5.0), (9.0, 9.5)]),
    ],
)
def test_the_gpu_stands_still_where_nothing_covers(
    busy: list[tuple[float, float]], idle: list[tuple[float, float]]
) -> None:
    assert idle_within((2.0, 10.0), busy) == idle


def test_a_label_has_its_part_of_the_window_and_of_what_was_idle() -> None:
    spans = [("load", 0.0, 3.0), ("wait", 3.0, 7.0), ("load", 7.0, 8.0), ("send", 8.0, 12.0)]
    found = shares((1.0, 10.0), spans, [(1.5, 3.5), (6.0, 7.5), (9.0, 10.0)])
    assert list(found) == ["load", "wait", "send"]
    numbers = [(one.seconds, one.idle, one.spans) for one in found.values()]
    assert numbers == [(3.0, 2.0, 2), (4.0, 1.5, 1), (2.0, 1.0, 1)]
