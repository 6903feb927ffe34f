"""`gemmtune serve` and `gemmtune doctor`."""

from __future__ import annotations

import dataclasses
from importlib import import_module
from typing import Annotated

import typer

from tuner.cli.options import Db, Json, open_store
from tuner.cli.output import console, emit, notes
from tuner.doctor import checkup
from tuner.settings import database_url, settings

EXIT_BROKEN = 1


def serve(
    db: Db = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on. [default: GEMMTUNE_HOST]")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on. [default: GEMMTUNE_PORT]")] = None,
) -> None:
    """Serves the store over HTTP: best, explain, measurements, tables."""
    # `api` stands to the left of `tuner`; only this command reaches it, and only when it runs.
    server = import_module("api.server")
    config = settings()
    with open_store(db) as store:
        address = f"http://{host or config.host}:{port or config.port}"
        notes.print(f"serving on {address}; try curl '{address}/v1/best?m=4096&n=4096&k=4096'", markup=False)
        server.serve(store, host or config.host, port or config.port)


def doctor(db: Db = None, as_json: Json = False) -> None:
    """Checks driver, GPU, NVRTC, recordings, cache and store; one line each, with the fix.

    Ends with exit code 1 when something that every machine needs is broken.
    """
    checks = checkup(settings(), database_url(db) if db else settings().db_url)
    if as_json:
        emit({"checks": [dataclasses.asdict(check) for check in checks]})
    else:
        for check in checks:
            console.print(f"{check.state:<8} {check.name:<11} {check.found}", markup=False)
            if check.fix:
                console.print(f"{'':<20} fix: {check.fix}", markup=False)
    if any(check.state == "broken" for check in checks):
        raise typer.Exit(EXIT_BROKEN)
