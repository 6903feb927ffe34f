"""Calls that can be given up: a device's finals take minutes, and a worker that is told to end has seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable
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
    results, errors, done = list[T](), list[BaseException](), threading.Event()

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=run, name="given up if unwanted", daemon=True)
    thread.start()
    while not done.wait(_LOOK_SECONDS):
        if unwanted():
            end()
            thread.join(_END_SECONDS)
            raise GivenUp
    if errors:
        raise errors[0]
    return results[0]
