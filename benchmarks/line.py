"""A minimal HTTP/1.1 client: one persistent connection, one call at a time, with little processor time.

A thousand simulated workers share one process, and their HTTP client's processor time counts as latency of the service.
A general client with a pool costs more per call than the service does.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and body of a response."""

    status: int
    body: bytes


class Line:
    """A connection to one host and port, opened at the first call and again after the service closed it.

    Args:
        token: sent with every call.
    """

    def __init__(self, host: str, port: int, token: str) -> None:
        self._host, self._port = host, port
        self._head = f"HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n"
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: bytes) -> Answer:
        """One call.

        Raises:
            OSError: the service is unreachable.
            asyncio.IncompleteReadError: the service closed the connection during a response.
        """
        sent = f"POST {path} {self._head}content-length: {len(body)}\r\n\r\n".encode() + body
        if self._streams is None or self._streams[0].at_eof():
            self.close()
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        writer.write(sent)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = head.partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0]
        return Answer(int(head[9:12]), await reader.readexactly(int(length)) if length else b"")

    def close(self) -> None:
        """Closes the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
