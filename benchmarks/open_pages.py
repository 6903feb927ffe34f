"""Open pages without a browser: what each asks of the service while it is looked at.

    python -m benchmarks.open_pages PORT DEVICE KEY

Half of them show all problems, and ask for the columns anew at each new best; half show the problem with this key, and
ask after each batch whether a measurement is theirs. They say `open` when all streams are, and end with their input.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import quote

PAGES: Final = 20
_ZSTD: Final = {"Accept-Encoding": "zstd"}


@contextmanager
def open_pages(port: int, device: str, key: str) -> Iterator[None]:
    """The pages in a process of their own, as long as the block runs."""
    command = [sys.executable, "-m", "benchmarks.open_pages", str(port), device, key]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as pages:
        assert pages.stdin
        assert pages.stdout
        try:
            assert pages.stdout.readline() == b"open\n"
            yield
        finally:
            pages.stdin.close()


class _Page:
    """One page: its event stream, and the connection of its questions.

    Args:
        place: gives it an address of its own, as another person has.
        event: the event after which it asks.
        path: what it then asks for.
    """

    def __init__(self, port: int, place: int, device: str, event: str, path: str) -> None:
        self._source, self._port, self._event, self._path = (f"127.0.0.{2 + place}", 0), port, event, path
        self._asking, self._etag = self._connection(), ""
        stream = self._connection()
        stream.request("GET", f"/v1/events?device={quote(device)}")
        self._stream = stream.getresponse()
        assert self._stream.status == 200

    def _connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self._port, timeout=600, source_address=self._source)

    def follow(self) -> None:
        """Asks once, and again after each of its events."""
        self._ask()
        while line := self._stream.readline():
            if line.strip() == f"event: {self._event}".encode():
                self._ask()

    def _ask(self) -> None:
        self._asking.request("GET", self._path, headers=_ZSTD | ({"If-None-Match": self._etag} if self._etag else {}))
        answer = self._asking.getresponse()
        answer.read()
        assert answer.status in (200, 304), answer.status
        self._etag = answer.headers.get("ETag", "")


def main() -> None:
    """Opens the pages."""
    port, device, key = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    # On the machines of people who look, they take no time from the service.
    os.nice(19)
    last = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    last.request("GET", f"/v1/measurements:columns?problem={quote(key)}&limit=1")
    after = json.loads(last.getresponse().read())["last_id"]
    asked = [
        ("best", f"/v1/bests:columns?device={quote(device)}"),
        ("measurements", f"/v1/measurements:columns?problem={quote(key)}&device={quote(device)}&after={after}&limit=1"),
    ]
    for place in range(PAGES):
        page = _Page(port, place, device, *asked[place % len(asked)])
        threading.Thread(target=page.follow, daemon=True).start()
    print("open", flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
