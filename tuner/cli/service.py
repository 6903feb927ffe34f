"""`gemmtune serve` and `gemmtune doctor`."""

from __future__ import annotations

import dataclasses
from importlib import import_module
from typing import Annotated

import typer

from tuner.cli.checkup import checkup
from tuner.cli.options import Db, Json, open_store, timing_of
from tuner.cli.output import console, emit, notes
from tuner.errors import SettingsError
from tuner.exits import EXIT_BROKEN
from tuner.fleet.checkup import fleet_checkup, service_check
from tuner.settings import database_url, settings


def serve(
    db: Db = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on. [default: GEMMTUNE_HOST]")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on. [default: GEMMTUNE_PORT]")] = None,
    auth: Annotated[
        str | None,
        typer.Option(help="on: every request needs a token; off: none does; auto: off on loopback with SQLite alone. "
                     "[default: GEMMTUNE_AUTH]"),
    ] = None,
) -> None:  # fmt: skip
    """Serves the store over HTTP: best, explain, measurements, tables, campaigns and their workers."""
    # `api` stands to the left of `tuner`; only this command reaches it, and only when it runs.
    server, access = import_module("api.server"), import_module("api.access")
    config = settings()
    host, port, mode = host or config.host, port or config.port, auth or config.auth
    if mode not in ("auto", "on", "off"):
        raise SettingsError(f"--auth {mode!r} is unknown: use auto, on or off")
    with open_store(db) as store:
        rules = access.decide(mode, host, store.embedded, config.hosts, config.requests_per_second)
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        if rules.tokens:
            notes.print(f"serving on {address}; requests need a token: gemmtune token create NAME --scope read")
            if not access.is_loopback(host):
                notes.print("tokens travel readable over plain HTTP: put a proxy with TLS in front")
        else:
            notes.print(f"serving on {address}, to this machine alone; tokens are off: whoever is on it may do all")
            notes.print(f"try curl '{address}/v1/best?m=4096&n=4096&k=4096'", markup=False)
        server.serve(store, host, port, rules, config.model_dir, timing_of(config))


def doctor(db: Db = None, as_json: Json = False) -> None:
    """Checks this machine and the fleet: service, database, queue, workers; one line each, with the fix.

    Of this machine: driver, GPU, NVRTC, cache, recordings. Of the fleet: the service at GEMMTUNE_URL, the database, its
    schema and clock, queue, workers, parked problems, disk. Changes nothing.

    Ends with exit code 1 when something is broken.
    """
    config = settings()
    checks = checkup(config)
    if config.url:
        checks.append(service_check(config.url, config.secret))
    checks += fleet_checkup(database_url(db) if db else config.db_url, timing_of(config))
    if as_json:
        emit({"checks": [dataclasses.asdict(check) for check in checks]})
    else:
        for check in checks:
            console.print(f"{check.state:<8} {check.name:<11} {check.found}", markup=False)
            if check.fix:
                console.print(f"{'':<20} fix: {check.fix}", markup=False)
    if any(check.state == "broken" for check in checks):
        raise typer.Exit(EXIT_BROKEN)
