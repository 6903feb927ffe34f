"""What is made once, by whichever thread comes first."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from gemmtune.once import once


def test_threads_that_come_together_share_what_one_of_them_makes() -> None:
    @once
    def made(number: int) -> list[int]:
        time.sleep(0.05)
        return [number]

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(made, [7] * 4))
    assert found == [[7]] * 4
    assert len(set(map(id, found))) == 1
    made.cache_clear()
    assert made(7) is not found[0]


def test_what_is_kept_is_given_while_another_thing_is_made() -> None:
    making, go_on = threading.Event(), threading.Event()

    @once
    def made(wait: bool) -> bool:
        if wait:
            making.set()
            assert go_on.wait(10)
        return wait

    assert made(False) is False
    with ThreadPoolExecutor(2) as threads:
        slow = threads.submit(made, True)
        assert making.wait(10)
        try:
            assert threads.submit(made, False).result(5) is False
        finally:
            go_on.set()
        assert slow.result() is True


def test_what_fails_is_tried_again() -> None:
    tried: list[int] = []

    @once
    def made() -> int:
        tried.append(1)
        if len(tried) == 1:
            raise ValueError("not yet")
        return len(tried)

    with pytest.raises(ValueError, match="not yet"):
        made()
    assert (made(), made(), len(tried)) == (2, 2, 2)
