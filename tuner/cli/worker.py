"""`gemmtune worker …`: a GPU that takes rounds from a service."""

from __future__ import annotations

import logging
import os
import signal
import socket
from typing import Annotated

import typer

from tuner.agent.agent import Agent
from tuner.agent.http import HttpDesk
from tuner.agent.service import Service
from tuner.cli import campaign_output as shown
from tuner.cli.campaign import Insecure, Url, office_at
from tuner.cli.options import Db, Device, Json
from tuner.cli.output import console, emit, notes
from tuner.cli.tune import say_device
from tuner.devices import open_worker
from tuner.errors import SettingsError
from tuner.model.files import model_for
from tuner.settings import settings
from workers.ports import Worker

app = typer.Typer(no_args_is_help=True, help="Workers: run one here, list them, let one leave.")


@app.command()
def run(
    url: Url = None,
    device: Device = "auto",
    name: Annotated[str | None, typer.Option(help="Of this worker. [default: host and process]")] = None,
    once: Annotated[bool, typer.Option("--once", help="Leave as soon as there is nothing to do.")] = False,
    insecure: Insecure = False,
) -> None:
    """Takes rounds from a service until told to stop. It dials out; nothing dials it.

    The token comes from GEMMTUNE_TOKEN_FILE or GEMMTUNE_TOKEN. The first SIGTERM or Ctrl-C reports the round
    with what it has and leaves; the second one ends at once.
    """
    config = settings()
    address = url or config.url
    if not address:
        raise SettingsError("no service is named: give --url http://host:8643, or set GEMMTUNE_URL")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    # One line a request is too much of the client's.
    logging.getLogger("httpx2").setLevel(logging.WARNING)

    def open_device() -> Worker:
        opened = open_worker(device, config)
        say_device(opened.facts)
        return opened

    with Service(address, config.secret, insecure=insecure) as service:
        agent = Agent(
            HttpDesk(service), open_device, name or f"{socket.gethostname()}-{os.getpid()}", leave_when_idle=once,
            model_of=lambda model: model_for(model, config.model_dir).model,
        )  # fmt: skip
        _leave_on_signals(agent)
        agent.run()
    notes.print(f"{agent.rounds} rounds done")


@app.command("list")
def list_workers(
    gone: Annotated[bool, typer.Option("--gone", help="Those that are gone too.")] = False,
    db: Db = None,
    url: Url = None,
    insecure: Insecure = False,
    as_json: Json = False,
) -> None:
    """Who is there, on which device, and what it runs."""
    with office_at(db, url, insecure) as office:
        found = {"workers": list(office.workers(gone))}
    if as_json:
        emit(found)
    else:
        shown.workers(found)


@app.command()
def drain(
    number: Annotated[int, typer.Argument(help="The worker's number.", min=1)],
    db: Db = None,
    url: Url = None,
    insecure: Insecure = False,
    as_json: Json = False,
) -> None:
    """Lets a worker finish its round, take no more, and leave."""
    with office_at(db, url, insecure) as office:
        found = office.drain(number)
    if as_json:
        emit(found)
    else:
        console.print(f"worker {found['id']} ({found['name']}) is {found['status']}", markup=False)


def _leave_on_signals(agent: Agent) -> None:
    asked: list[int] = []

    def stop(number: int, frame: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        notes.print("leaving: the round is reported with what it has; once more to end at once")
        agent.leave()

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
