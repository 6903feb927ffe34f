"""Calls that can be given up: a device's finals take minutes, and a worker that is told to end has seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Final, TypeVar

T = TypeVar("T")

#: Between two looks whether the result is still wanted.
_LOOK_SECONDS: Final = 0.1
#: A call that was given up ends within this time, or is left alone.
_END_SECONDS: Final = 5.0


class GivenUp(Exception):
    """Nobody wants the result any more."""


def unless(unwanted: Callable[[], bool], call: Callable[[], T], end: Callable[[], None]) -> T:
    """The result of a call, which is made in a thread of its own.

    Args:
        unwanted: whether the call is to be given up.
        end: makes a call that was given up fail, so that its thread ends.

    Raises:
        GivenUp: it was, whatever came of the call.
        BaseException: what the call raised.
    """
    result = Future[T]()

    def run() -> None:
        try:
            result.set_result(call())
        except BaseException as error:
            result.set_exception(error)

    # Not of a pool, for which the end of this process would wait.
    threading.Thread(target=run, name="given up if unwanted", daemon=True).start()
    while not wait([result], _LOOK_SECONDS).done:
        if unwanted():
            end()
            wait([result], _END_SECONDS)
            raise GivenUp
    return result.result()
