"""`gemmtune worker …`: runs, lists and drains workers."""

from __future__ import annotations

import logging
import math
import os
import socket
import sys
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from tuner.cli import campaign_output as shown
from tuner.cli.campaign import Insecure, Url, campaign_client_at
from tuner.cli.commands import group
from tuner.cli.options import MOST_NUMBER, Db, Json
from tuner.cli.output import notes, say, show
from tuner.cli.signals import leaving
from tuner.cli.tune import say_device
from tuner.counts import counted
from tuner.errors import CampaignError, SettingsError
from tuner.fleet.agent.agent import Agent
from tuner.fleet.agent.build_cache import HttpBuildCache
from tuner.fleet.agent.coordinator import HttpCoordinator
from tuner.fleet.agent.ending import LastResort
from tuner.fleet.agent.pool import FINAL, FINAL_ONCE, AgentPool, AgentProcess, report_liveness
from tuner.fleet.service_client import ServiceClient
from tuner.prediction.files import model_for
from tuner.settings import PATIENCE_SECONDS, Settings, settings
from tuner.studying.open_worker import check_here, every_device, open_worker
from workers.ports import Worker

#: Timeout of a worker's calls: one that was told to end may be in the middle of one.
_CALL_SECONDS: Final = 10.0

app = group("Workers: run one here, list them, drain one, revoke its reports.")


@app.command()
def run(
    url: Annotated[str | None, typer.Option(help="URL of the service. \\[default: GEMMTUNE_URL]")] = None,
    device: Annotated[
        list[str] | None,
        typer.Option("--device", "--devices", help="auto, cuda:0 or recorded:h200; repeatable, with one process per "
                     "device. \\[default: every GPU here, or recorded:h200]"),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of this worker. \\[default: host and process id]")] = None,
    once: Annotated[bool, typer.Option("--once", help="Leave as soon as no round is waiting. Ends with code 7 if "
                                                "the service does not answer for a minute.")] = False,
    own_builds: Annotated[bool, typer.Option("--own-builds", help="Compile everything here; share no builds.")] = False,
    insecure: Insecure = False,
    liveness_fd: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:  # fmt: skip
    """Runs rounds for a service until told to stop. It only makes outgoing connections.

    With several devices, one process runs per device, and is replaced if it dies or hangs.

    The token comes from GEMMTUNE_TOKEN_FILE or GEMMTUNE_TOKEN. The first SIGTERM or Ctrl-C reports the round
    as it is and leaves, within 30 s whatever the service does; the second one ends the process at once.
    """
    config = settings()
    address = url or config.url
    if not address:
        raise SettingsError("no service is configured: give --url http://host:8643, or set GEMMTUNE_URL")
    # Fails early, and once, on a bad address or token file.
    ServiceClient(address, config.secret, insecure=insecure).close()
    devices = device or every_device()
    if len(devices) == 1:
        own_name = name or f"{socket.gethostname()}-{os.getpid()}"
        _log_as(own_name)
        rounds = _work(address, config, devices[0], own_name, once, own_builds, insecure, liveness_fd)
        notes.print(f"{counted(rounds, 'round')} ended")
        return
    # The pool starts a process again whose device can't be used, for as long as it can't.
    check_here(devices, config)
    flags = {"--once": once, "--own-builds": own_builds, "--insecure": insecure}
    same = ["--url", address, *(flag for flag, given in flags.items() if given)]
    if code := _run_pool(devices, name, same, FINAL_ONCE if once else FINAL):
        raise typer.Exit(code)


def _run_pool(devices: Sequence[str], name: str | None, same: Sequence[str], final: Collection[int]) -> int:
    """Runs an agent process for each device, and returns the exit code of the pool.

    Args:
        same: options of all of them.
        final: exit codes after which one is not replaced.
    """
    _log_as(f"{name or socket.gethostname()} pool")
    processes = []
    for place, word in enumerate(devices):
        named = ["--name", f"{name}.{place}"] if name else []
        command = [*_own_program(), "worker", "run", "--device", word, *named, *same, "--liveness-fd"]
        processes.append(AgentProcess(word, command, final=final))
    pool = AgentPool(processes)
    with leaving(pool.leave, "every worker reports its round as it stands", pool.leave):
        return pool.run()


def _own_program() -> list[str]:
    """The command line of this process without its arguments: the interpreter, its options and the program."""
    program = sys.orig_argv[: len(sys.orig_argv) - len(sys.argv) + 1]
    return [sys.executable, *program[1:]]


def _work(
    address: str, config: Settings, device: str, name: str, once: bool, own_builds: bool, insecure: bool,
    liveness_fd: int | None,
) -> int:  # fmt: skip
    """Runs one agent in this process and returns its number of rounds."""
    with ServiceClient(address, config.secret, seconds=_CALL_SECONDS, insecure=insecure) as service:
        build_cache = None if own_builds else HttpBuildCache(service)

        def open_device() -> Worker:
            opened = open_worker(device, config, build_cache)
            if build_cache is not None:
                build_cache.arch = opened.facts.arch
            say_device(opened.facts)
            return opened

        agent = Agent(
            HttpCoordinator(service), open_device, name, leave_when_idle=once,
            model_of=lambda model: model_for(model, config.model_dir).model, end_seconds=config.end_seconds,
            patience_seconds=PATIENCE_SECONDS if once else math.inf,
        )  # fmt: skip
        last_resort = LastResort(agent.close_device, config.end_seconds)

        def leave() -> None:
            last_resort.start()
            agent.leave()

        if liveness_fd is not None:
            report_liveness(liveness_fd, leave)
        try:
            with leaving(leave, "the round is reported as it stands"):
                agent.run()
        finally:
            if build_cache is not None:
                build_cache.close()
        return agent.rounds


def _log_as(name: str) -> None:
    text = name.replace("%", "%%")
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s {text} %(levelname)s %(message)s")
    # httpx2 logs one line per request.
    logging.getLogger("httpx2").setLevel(logging.WARNING)


@app.command("list")
def list_workers(
    gone: Annotated[bool, typer.Option("--gone", help="Include workers that are gone.")] = False,
    db: Db = None,
    url: Url = None,
    insecure: Insecure = False,
    as_json: Json = False,
) -> None:
    """Lists workers with their device and current round."""
    with campaign_client_at(db, url, insecure) as client:
        found = {"workers": list(client.workers(gone))}
    show(found, as_json, shown.workers)


@app.command()
def drain(
    number: Annotated[int, typer.Argument(help="The worker's number.", min=1, max=MOST_NUMBER)],
    db: Db = None,
    url: Url = None,
    insecure: Insecure = False,
    as_json: Json = False,
) -> None:
    """Drains a worker: it finishes its round, claims no other, and leaves."""
    with campaign_client_at(db, url, insecure) as client:
        found = client.drain(number)
    say(f"worker {found['id']} ({found['name']}) is {found['status']}", found, as_json)


@app.command()
def revoke(
    name: Annotated[str, typer.Argument(help="The worker's name; none with --token.")] = "",
    token: Annotated[str, typer.Option(metavar="NAME", help="Revoke what this token reported.")] = "",
    since: Annotated[
        datetime | None, typer.Option(help="Only reports stored at this time (UTC) or later. \\[default: everything]")
    ] = None,
    reason: Annotated[str, typer.Option(help="Why; kept with the revocation.")] = "",
    db: Db = None,
    url: Url = None,
    insecure: Insecure = False,
    as_json: Json = False,
) -> None:
    """Takes a worker's or a token's measurements out of the running, and serves the best of the rest."""
    if bool(name) == bool(token):
        raise CampaignError("give either a worker's name or --token NAME")
    with campaign_client_at(db, url, insecure) as client:
        found = client.revoke(name, token, since.replace(tzinfo=UTC) if since else None, reason)
    theirs = f"{counted(found['measurements'], 'measurement')} of {name or f'token {token}'}"
    bests = f"bests of {counted(found['bests'], 'problem')}"
    say(f"out of the running: {theirs}; replaced or removed: {bests}", found, as_json)
