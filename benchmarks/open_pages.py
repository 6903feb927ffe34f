"""Open pages without a browser: what each asks of the service while it is looked at.

Half of them show all problems, and ask at each new best for the rows that have changed; half show the problem with this
key, and ask for its measurements whenever an event names it. They say `open` when all streams are, and end with their
input.
"""

from __future__ import annotations

import argparse
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

import zstandard

PAGES: Final = 20
_ZSTD: Final = {"Accept-Encoding": "zstd"}
_MOST_BYTES: Final = 64 * 2**20


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
        key: the problem that it shows; empty for all.
    """

    def __init__(self, port: int, place: int, device: str, key: str) -> None:
        self._source, self._port, self._device, self._key = (f"127.0.0.{2 + place}", 0), port, device, key
        self._asking, self._etag, self._version = self._connection(), "", 0
        stream = self._connection()
        stream.request("GET", f"/v1/events?device={quote(device)}")
        self._stream = stream.getresponse()
        assert self._stream.status == 200

    def _connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self._port, timeout=600, source_address=self._source)

    def follow(self) -> None:
        """Asks once, and again after each of its events."""
        self._ask()
        event = b""
        while line := self._stream.readline():
            if line.startswith(b"event: "):
                event = line[7:].strip()
            elif line.startswith(b"data: ") and self._concerns(event, line[6:]):
                self._ask()

    def _concerns(self, event: bytes, data: bytes) -> bool:
        if not self._key:
            return event == b"best"
        return event == b"measurements" and self._key in (json.loads(data)["problems"] or [self._key])

    def _ask(self) -> None:
        path = f"/v1/bests:columns?device={quote(self._device)}&after={self._version}"
        if self._key:
            path = f"/v1/measurements:columns?problem={quote(self._key)}&device={quote(self._device)}&limit=150000"
        self._asking.request("GET", path, headers=_ZSTD | ({"If-None-Match": self._etag} if self._etag else {}))
        answer = self._asking.getresponse()
        body = answer.read()
        assert answer.status in (200, 304), answer.status
        self._etag = answer.headers.get("ETag", "")
        if not self._key:
            if answer.headers.get("Content-Encoding") == "zstd":
                body = zstandard.ZstdDecompressor().decompress(body, max_output_size=_MOST_BYTES)
            self._version = json.loads(body)["version"]


def main() -> None:
    """Opens the pages."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("port", type=int)
    options.add_argument("device")
    options.add_argument("key")
    given = options.parse_args()
    # On the machines of people who look, they take no time from the service.
    os.nice(19)
    for place in range(PAGES):
        page = _Page(given.port, place, given.device, given.key if place % 2 else "")
        threading.Thread(target=page.follow, daemon=True).start()
    print("open", flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
