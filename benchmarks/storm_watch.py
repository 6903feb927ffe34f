"""Records when a service's outages ended, for the audit."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

import httpx2

from benchmarks.repeated import Repeated

_EVERY_SECONDS = 0.1


class Watch(Repeated):
    """Polls a service's readiness between `__enter__` and `__exit__`.

    Attributes:
        recovered: when it was ready again after it had not been, and whatever `note` adds.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        super().__init__("watch")
        self.recovered: list[datetime] = []

    def note(self) -> None:
        """Something that no service can do without is back."""
        self.recovered.append(datetime.now(UTC))

    def _run(self) -> None:
        well = False
        with httpx2.Client(base_url=self._url, timeout=2) as http:
            while not self._ended.wait(_EVERY_SECONDS):
                before, well = well, False
                with suppress(httpx2.TransportError):
                    well = http.get("/readyz").status_code == 200
                if well and not before:
                    self.note()
