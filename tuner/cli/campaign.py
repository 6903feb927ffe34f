"""`gemmtune campaign …`: tunes many problems, on this machine or on a fleet."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Sized
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from space.devices import identity_named
from space.errors import ProblemError
from space.kind import problem_from_key
from space.problem import Problem
from tuner.cli import campaign_output as shown
from tuner.cli.commands import group
from tuner.cli.options import (
    AUTO,
    MOST_NUMBER,
    Db,
    Device,
    Json,
    device_named,
    existing_store,
    open_store,
    planning_store,
    same_place,
    shared_store,
    timing_of,
)
from tuner.cli.output import notes, show
from tuner.cli.replayed import word_for_all
from tuner.cli.shape_options import BlockScaledAs, Ms, Sources, Tf32, Tp, asked_of, shapes_told
from tuner.cli.signals import leaving
from tuner.cli.tune import say_device
from tuner.errors import CampaignError, StoreError, Unreachable
from tuner.exits import EXIT_NOTHING
from tuner.fleet.campaigns.campaigns import Campaigns
from tuner.fleet.campaigns.client import CampaignClient, Change, HttpCampaigns, LocalCampaigns
from tuner.fleet.campaigns.documents import Document, document
from tuner.fleet.campaigns.estimate import ALL_RECORDED, Unrecorded, estimate
from tuner.fleet.campaigns.records import Campaign, CampaignBudget, CampaignRequest, CampaignStatus, ProblemStatus
from tuner.fleet.campaigns.results import summary
from tuner.fleet.embedded import EmbeddedRun
from tuner.fleet.service_client import ServiceClient
from tuner.prediction.files import model_for
from tuner.settings import PATIENCE_SECONDS, settings
from tuner.studying.candidates import unmeasurable
from tuner.studying.open_worker import open_worker, recorded_nowhere
from tuner.tables import problems
from tuner.tables.importers.source import Asked
from workers.ports import Worker

if TYPE_CHECKING:
    from tuner.evidence.store import Store

OpensStore: TypeAlias = "Callable[[str | None], AbstractContextManager[Store]]"

app = group("Many problems with one budget: create, run, watch, pause, cancel.")

Url = Annotated[str | None, typer.Option(help="Service to use instead of the store. \\[default: GEMMTUNE_URL]")]
Insecure = Annotated[bool, typer.Option("--insecure", help="Send the token over plain HTTP in a private network.")]
Number = Annotated[int, typer.Argument(help="The campaign's number.", min=1, max=MOST_NUMBER)]
Ladder = Annotated[
    list[str] | None,
    typer.Option("--ladder", help="m=1..8192:x2 n=4096 k=4096,8192 dtype=bf16; repeatable."),
]
Name = Annotated[str | None, typer.Option(help="Name of the campaign. \\[default: the files or the ladders]")]
Candidates = Annotated[int, typer.Option(help="Most candidates per problem, including earlier studies.")]
Turns = Annotated[int, typer.Option(help="Fewest turns where `chain` decides.")]
Target = Annotated[float | None, typer.Option(help="Stop a problem at this share of its roofline bound, as in 0.9.")]
GpuSeconds = Annotated[float | None, typer.Option(help="Limit on the GPU time of all workers together.")]
Priority = Annotated[int, typer.Option(help="-100 to 100; higher goes first.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Estimate the cost without creating a campaign.")]

#: A name, and problems with their counts.
Listed = tuple[str, dict[Problem, int]]

_WATCH_SECONDS = 1.0
#: Most problems whose replays `show` describes.
_REPLAYS = 100


@app.command()
def create(
    sources: Sources = None,
    ladder: Ladder = None,
    ms: Ms = None,
    tp: Tp = 1,
    tf32: Tf32 = False,
    block_scaled_as: BlockScaledAs = "",
    misses: Annotated[
        bool, typer.Option("--misses", help="Add the questions that had no measured answer, with their counts.")
    ] = False,
    device: Annotated[
        list[str] | None,
        typer.Option("--device", help="GPU model, as in 'NVIDIA H200' or 'recorded:NVIDIA H200'. \\[default: auto, as "
                     "for best]"),
    ] = None,
    name: Name = None,
    candidates: Candidates = 96,
    turns: Turns = 30,
    target: Target = None,
    gpu_seconds: GpuSeconds = None,
    priority: Priority = 0,
    idempotency_key: Annotated[str | None, typer.Option(help="Reusing a key returns the campaign it created.")] = None,
    dry_run: DryRun = False,
    db: Db = None,
    url: Url = None,
    insecure: Insecure = False,
    as_json: Json = False,
) -> None:
    """Creates a campaign for the workers of a service or of this store."""
    devices = tuple(_device(word) for word in device or [AUTO])
    budget = CampaignBudget(candidates, turns, target, gpu_seconds)
    listed = _listed(sources, ladder, asked_of(ms, tp, tf32, block_scaled_as), misses)
    if misses:
        with campaign_client_at(db, url, insecure, planning_store) as client:
            # A GPU model and its recordings have the same questions.
            models = list(dict.fromkeys(model for model, _ in devices))
            listed = _with_misses(listed, client, models, bool(sources or ladder))
    request = _request(listed, name, devices, budget, priority)
    # The estimate refuses an invalid campaign before a store is created.
    with campaign_client_at(db, url, insecure, planning_store) as client:
        # Workers elsewhere have recordings of their own.
        lacking = _unrecorded(request) if client.of_this_machine else ALL_RECORDED
        cost = _with_all(lacking, client.estimate(request, lacking))
    if dry_run:
        show(cost, as_json, shown.estimate)
        _end_with(cost["untunable"])
        return
    with campaign_client_at(db, url, insecure, open_store) as client:
        there = same_place(db, url, insecure)
        show(client.create(request, idempotency_key), as_json, lambda campaign: shown.created(campaign, there))
    shown.who_takes_it(cost, request.devices, there)


@app.command()
def run(
    sources: Sources = None,
    ladder: Ladder = None,
    ms: Ms = None,
    tp: Tp = 1,
    tf32: Tf32 = False,
    block_scaled_as: BlockScaledAs = "",
    device: Device = "auto",
    name: Name = None,
    candidates: Candidates = 96,
    turns: Turns = 30,
    target: Target = None,
    gpu_seconds: GpuSeconds = None,
    again: Annotated[bool, typer.Option("--again", help="Create a new one if this one has ended.")] = False,
    dry_run: DryRun = False,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Creates a campaign and runs it here, on one device and without a server.

    You can interrupt it at any time: the same command resumes where it stopped and measures nothing twice. Its problems
    go before those of other campaigns in the store; in PostgreSQL they wait for their turn.
    """
    config, budget = settings(), CampaignBudget(candidates, turns, target, gpu_seconds)
    timing = timing_of(config)
    listed = _listed(sources, ladder, asked_of(ms, tp, tf32, block_scaled_as))
    device = word_for_all(device, listed[1])
    opened: list[Worker] = [open_worker(device, config)]
    facts = opened[0].facts
    request = _request(listed, name, ((facts.name, facts.kind),), budget, 0)
    if dry_run:
        with opened.pop() as worker, planning_store(db) as store:
            _estimate_here(worker, store, request, as_json)
        return
    with shared_store(db) as store:
        campaign = Campaigns(store).run(request, again)
        _check_goes_on(campaign)
        say_device(facts)
        with shown.watching(quiet=as_json) as show_progress:
            here = EmbeddedRun(
                store, campaign.id, lambda: opened.pop() if opened else open_worker(device, config),
                f"{socket.gethostname()}-{os.getpid()}", timing, lambda found: show_progress(document(found)),
                lambda model: model_for(model, config.model_dir).model,
            )  # fmt: skip
            with leaving(here.stop, "the round is reported as it stands") as asked:
                here.run()
        found = document(summary(store, campaign.id))
    # As JSON the interruption is the one document.
    if not (asked and as_json):
        show(found, as_json, shown.summary)
    if asked:
        raise KeyboardInterrupt
    _end_with(found["parked"])


def _check_goes_on(campaign: Campaign) -> None:
    """Refuses a campaign of which no round would ever begin.

    Raises:
        CampaignError: somebody has paused or cancelled it.
    """
    if campaign.status is CampaignStatus.PAUSED:
        fix = f"`gemmtune campaign resume {campaign.id}`, then run it again"
    elif campaign.status is CampaignStatus.CANCELLED:
        fix = "--again creates a new one"
    else:
        return
    raise CampaignError(f"campaign {campaign.id} of these problems is {campaign.status}: {fix}")


def _estimate_here(worker: Worker, store: Store, request: CampaignRequest, as_json: bool) -> None:
    """Shows what a campaign would cost on one device, and which problems it would park as not measurable there."""
    lacking = _unmeasurable(worker, request)
    cost = _with_all(lacking, asdict(estimate(store, request, here=1, unrecorded=lacking)))
    show(cost, as_json, shown.estimate)
    _end_with(cost["untunable"])


@app.command("list")
def list_campaigns(db: Db = None, url: Url = None, insecure: Insecure = False, as_json: Json = False) -> None:
    """Lists all campaigns, oldest first."""
    with campaign_client_at(db, url, insecure) as client:
        show({"campaigns": list(client.campaigns())}, as_json, shown.campaigns)


@app.command("show")
def show_one(number: Number, db: Db = None, url: Url = None, insecure: Insecure = False, as_json: Json = False) -> None:
    """Shows a campaign's progress, its gain over cuBLASLt, and its failures by kind."""
    with campaign_client_at(db, url, insecure) as client:
        found = client.summary(number)
        show(found, as_json, shown.summary)
        if found["replayed"] and not as_json:
            shown.replays(list(islice(client.problems(number, ProblemStatus.DONE), _REPLAYS)))


@app.command()
def watch(number: Number, db: Db = None, url: Url = None, insecure: Insecure = False, as_json: Json = False) -> None:
    """Watches a campaign until it ends."""
    with campaign_client_at(db, url, insecure) as client, shown.watching(quiet=as_json) as show_progress:
        progress = client.progress(number)
        while progress["campaign"]["status"] in ("running", "paused"):
            show_progress(progress)
            time.sleep(_WATCH_SECONDS)
            progress = _reached(lambda: client.progress(number))
        final = _reached(lambda: client.summary(number))
    show(final, as_json, shown.summary)
    _end_with(final["parked"])


def _reached(call: Callable[[], Document]) -> Document:
    """The answer to a call, which is repeated while the service restarts."""
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return call()
        except (StoreError, Unreachable) as error:
            if time.monotonic() >= until:
                raise
            notes.print(f"{error}; trying again")
        time.sleep(_WATCH_SECONDS)


@app.command("results")
def list_results(
    number: Number,
    status: Annotated[ProblemStatus | None, typer.Option(help="Only this status. \\[default: all]")] = None,
    db: Db = None,
    url: Url = None,
    insecure: Insecure = False,
    as_json: Json = False,
) -> None:
    """Lists a campaign's problems with their results."""
    with campaign_client_at(db, url, insecure) as client:
        show({"problems": list(client.problems(number, status))}, as_json, shown.results)


@app.command()
def pause(number: Number, db: Db = None, url: Url = None, insecure: Insecure = False, as_json: Json = False) -> None:
    """Pauses a campaign: no further round begins; running rounds finish normally."""
    _change(number, "pause", db, url, insecure, as_json)


@app.command()
def resume(number: Number, db: Db = None, url: Url = None, insecure: Insecure = False, as_json: Json = False) -> None:
    """Resumes a paused campaign."""
    _change(number, "resume", db, url, insecure, as_json)


@app.command()
def cancel(number: Number, db: Db = None, url: Url = None, insecure: Insecure = False, as_json: Json = False) -> None:
    """Cancels a campaign; running rounds stop at their next heartbeat. Measurements are kept."""
    _change(number, "cancel", db, url, insecure, as_json)


def _change(number: int, change: Change, db: str | None, url: str | None, insecure: bool, as_json: bool) -> None:
    with campaign_client_at(db, url, insecure) as client:
        there = same_place(db, url, insecure)
        show(client.change(number, change), as_json, lambda campaign: shown.created(campaign, there))


def _end_with(parked: Sized) -> None:
    """Ends the command with the code for "nothing to serve" if any problem is, or will be, parked."""
    if len(parked):
        raise typer.Exit(EXIT_NOTHING)


def _with_all(lacking: Unrecorded, cost: Document) -> Document:
    """An estimate that names every problem which recorded workers will park: it looked at some of a long list."""
    known = {entry["problem"] for entry in cost["untunable"]}
    cost["untunable"] += [{"problem": key, "rules": why} for (_, key), why in lacking.items() if key not in known]
    return cost


def _unmeasurable(worker: Worker, request: CampaignRequest) -> Unrecorded:
    """The problems that a recorded device cannot measure, each with the reason."""
    reasons = ((problem, unmeasurable(problem, worker)) for problem in request.problems)
    return {(worker.facts.name, problem.key): why for problem, why in reasons if why}


def _unrecorded(request: CampaignRequest) -> Unrecorded:
    """The problems that no recording here holds of a recorded device, each with the reason."""
    replayed = [name for name, kind in request.devices if kind == "recorded"]
    return {
        (name, problem.key): f"not recorded on {name}"
        for name in replayed for problem in recorded_nowhere(request.problems, name, settings())
    }  # fmt: skip


def _listed(sources: list[Path] | None, ladders: list[str] | None, asked: Asked, misses: bool = False) -> Listed:
    """The problems of files and ladders, with their counts.

    Raises:
        ProblemError: there are none in the files, and neither ladders nor misses.
    """
    found = shapes_told(sources or [], asked)
    counts = dict(found.counts)
    for expression in ladders or ():
        for problem in problems.ladder(expression):
            counts.setdefault(problem, 1)
    if sources and not counts and not misses:
        raise ProblemError(f"{' + '.join(map(str, sources))} lists no problem to tune: give one that does")
    called = " + ".join([path.name for path in sources or ()] or ladders or ["campaign"])
    # A ladder may go over several lines, a name may not.
    return " ".join(called.split())[:200], counts


def _with_misses(listed: Listed, client: CampaignClient, models: list[str], more: bool) -> Listed:
    """Adds the questions about these GPU models that had no measured answer."""
    called, counts = listed
    for model in models:
        for miss in client.misses(model):
            problem = problem_from_key(miss["problem"]["key"])
            counts[problem] = counts.get(problem, 0) + int(miss["count"])
    if not counts:
        raise ProblemError(f"no question about {' or '.join(models)} had no measured answer: give a list")
    return (f"{called} + misses"[:200] if more else "misses"), counts


def _request(
    listed: Listed, name: str | None, devices: tuple[tuple[str, str], ...], budget: CampaignBudget, priority: int
) -> CampaignRequest:
    called, counts = listed
    found = problems.distinct(counts)
    weighty = tuple(counts.values()) if any(count != 1 for count in counts.values()) else ()
    return CampaignRequest(name or called, found, devices, budget, priority, weighty)


def _device(word: str) -> tuple[str, str]:
    recorded, _, model = word.rpartition("recorded:")
    if word.startswith("recorded:") and not recorded:
        return identity_named(model), "recorded"
    return device_named(word), "cuda"


@contextmanager
def campaign_client_at(
    db: str | None, url: str | None, insecure: bool, opened: OpensStore = existing_store
) -> Iterator[CampaignClient]:
    """A client of the service that `--url` or the settings name, unless `--db` names a store.

    Args:
        opened: opens that store.
    """
    config = settings()
    address = url or (config.url if db is None else "")
    if address:
        with ServiceClient(address, config.secret, insecure=insecure) as service:
            yield HttpCampaigns(service)
        return
    with opened(db) as store:
        yield LocalCampaigns(store, timing_of(config))
