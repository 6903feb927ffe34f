"""Records when a service's outages ended, for the audit."""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

import httpx2

_EVERY_SECONDS = 0.1


class Watch:
    """Polls a service's readiness between `__enter__` and `__exit__`.

    Attributes:
        recovered: when it was ready again after it had not been, and whatever `note` adds.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self.recovered: list[datetime] = []

    def note(self) -> None:
        """Something that no service can do without is back."""
        self.recovered.append(datetime.now(UTC))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        well = False
        with httpx2.Client(base_url=self._url, timeout=2) as http:
            while not self._ended.wait(_EVERY_SECONDS):
                before, well = well, False
                with suppress(httpx2.TransportError):
                    well = http.get("/readyz").status_code == 200
                if well and not before:
                    self.note()
