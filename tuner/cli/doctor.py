"""`gemmtune doctor`."""

from __future__ import annotations

import typer

from tuner.cli.checkup import checkup
from tuner.cli.options import Db, Json, timing_of
from tuner.cli.output import console, emit
from tuner.exits import EXIT_BROKEN
from tuner.fleet.checkup import fleet_checkup, service_check
from tuner.settings import database_url, settings


def doctor(db: Db = None, as_json: Json = False) -> None:
    """Checks this machine and the fleet: one line per check, with the fix for what fails.

    On this machine: driver, GPU, NVRTC, cache, recordings. In the fleet: the service at GEMMTUNE_URL, the database with
    its schema and clock, queue, workers, parked problems, disk. Changes nothing.

    Exits with code 1 if something is broken.
    """
    config = settings()
    checks = checkup(config)
    if config.url:
        checks.append(service_check(config.url, config.secret))
    checks += fleet_checkup(database_url(db) if db else config.db_url, timing_of(config))
    if as_json:
        emit({"checks": checks})
    else:
        for check in checks:
            console.print(f"{check.state:<8} {check.name:<11} {check.found}")
            if check.fix:
                console.print(f"{'':<20} fix: {check.fix}")
    if any(check.state == "broken" for check in checks):
        raise typer.Exit(EXIT_BROKEN)
