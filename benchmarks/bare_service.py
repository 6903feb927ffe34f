"""The baseline of the service: plain FastAPI with one endpoint that returns the same bytes.

    python -m benchmarks.bare_service FILE granian PORT

granian runs it exactly as it runs the service; uvicorn runs it as FastAPI's own documentation does.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from pathlib import Path

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


def main() -> None:
    """Serves a file's content on a port, with one of the two servers."""
    path, server, port = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    app, listener = create_bare(path.read_bytes()), listen("127.0.0.1", port)
    if server == "granian":
        gc.collect()
        gc.freeze()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(Server(app, listener).serve())
    else:
        config = uvicorn.Config(app, log_level="warning", access_log=False)
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
