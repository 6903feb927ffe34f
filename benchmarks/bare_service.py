"""The baseline of the service: plain FastAPI with one endpoint that returns the same bytes.

granian runs it exactly as it runs the service; uvicorn runs it as FastAPI's own documentation does. `constant` is no
framework at all: it writes the same bytes for whatever arrives, so what it takes is the machine's and the client's.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import socket
from pathlib import Path
from typing import cast

import uvicorn
import uvloop
from fastapi import FastAPI, Response

from api.server import Server, listen


def create_bare(text: bytes) -> FastAPI:
    """An application whose only endpoint answers with `text`."""
    app = FastAPI()

    @app.get("/v1/best")
    async def best() -> Response:
        return Response(text, media_type="application/json")

    return app


class Constant(asyncio.Protocol):
    """Answers the end of each head with `text`.

    Args:
        text: of the body.
    """

    def __init__(self, text: bytes) -> None:
        self._answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(text)
        self._answer += text

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the connection."""
        # uvloop's transports are of no class of asyncio's.
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        """Answers; a head arrives in one part."""
        self._transport.write(self._answer * data.count(b"\r\n\r\n"))


async def serve_constant(text: bytes, listener: socket.socket) -> None:
    """Serves `Constant` until the process ends."""
    server = await asyncio.get_running_loop().create_server(lambda: Constant(text), sock=listener)
    await server.serve_forever()


def main() -> None:
    """Serves a file's content on a port, with one of the three servers."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("file", type=Path, help="what the endpoint answers")
    options.add_argument("server", choices=("granian", "uvicorn", "constant"))
    options.add_argument("port", type=int)
    given = options.parse_args()
    text, listener = given.file.read_bytes(), listen("127.0.0.1", given.port)
    if given.server == "constant":
        gc.disable()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve_constant(text, listener))
    app = create_bare(text)
    if given.server == "granian":
        gc.collect()
        gc.freeze()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(Server(app, listener).serve())
    else:
        config = uvicorn.Config(app, log_level="warning", access_log=False)
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
