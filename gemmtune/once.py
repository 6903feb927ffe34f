"""Once: functions whose results are kept, and made by one of the threads that come together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any, Generic, ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")
_ABSENT = object()


class once(Generic[P, T]):  # noqa: N801  (a decorator)
    """Keeps what a function returns, for ever. Who asks for what is kept waits for nobody who makes something else.

    `functools.cache` lets threads that come together make one each. What the function raises is not kept.

    Args:
        make: takes hashable arguments, by their places.
    """

    def __init__(self, make: Callable[P, T]) -> None:
        self._make = make
        self._kept: dict[Hashable, Any] = {}
        self._lock = threading.Lock()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        found = self._kept.get(args, _ABSENT)
        if found is _ABSENT:
            with self._lock:
                found = self._kept.get(args, _ABSENT)
                if found is _ABSENT:
                    found = self._kept[args] = self._make(*args, **kwargs)
        return cast(T, found)

    def cache_clear(self) -> None:
        """Forgets everything."""
        self._kept.clear()
