"""The baseline of the service: plain FastAPI with one endpoint that returns the same bytes."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import uvicorn
from fastapi import FastAPI, Response


def create_bare(text: bytes) -> FastAPI:
    """An application whose only endpoint answers with `text`."""
    app = FastAPI()

    @app.get("/v1/best")
    async def best() -> Response:
        return Response(text, media_type="application/json")

    return app


def main() -> None:
    """Serves a file's content on a port: `python -m benchmarks.bare_service PORT FILE`."""
    port, path = int(sys.argv[1]), Path(sys.argv[2])
    listener = socket.create_server(("127.0.0.1", port))
    config = uvicorn.Config(create_bare(path.read_bytes()), log_level="warning", access_log=False)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
