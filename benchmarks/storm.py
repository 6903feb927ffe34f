"""A storm over a fleet: workers, services and the database fail at random, and clients attack, until a campaign ends.

    python -m benchmarks.storm --seeds 0 1 2 3 4 --problems 60 --workers 4 --faults 30 --out benchmarks/results/F.md

PostgreSQL with a standby, two `gemmtune serve` and several `gemmtune worker run` are real processes that use HTTP, and
NVRTC compiles the candidates. Only the GPU is replaced, by planted recordings of any number of problems. At the end
`audit` checks the tables, and that every report that a worker was told to be stored is there.
"""

from __future__ import annotations

import argparse
import random
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.command import as_command, positive
from benchmarks.published import add_out, publish
from benchmarks.replicated import replicated
from benchmarks.silent_proxy import ReportingProxy
from benchmarks.storm_audit import Audit, Told, audit
from benchmarks.storm_fleet import Fleet
from benchmarks.storm_recordings import plant
from benchmarks.storm_thief import Thief
from benchmarks.storm_watch import Watch
from benchmarks.storm_weather import Fault, Weather, planned
from space.kinds.gemm import Gemm
from tuner.errors import StoreError
from tuner.evidence import tokens
from tuner.evidence.store import Store
from tuner.fleet.campaigns import results
from tuner.fleet.campaigns.campaigns import Campaigns
from tuner.fleet.campaigns.records import CampaignBudget, CampaignRequest, CampaignStatus

#: Enough that the campaign outlasts its faults on a fast machine too.
_CANDIDATES: Final = 96
_SERVICES: Final = 2


@dataclass(slots=True)
class Storm:
    """Outcome of a storm.

    Attributes:
        seconds: from the campaign's beginning to its end.
    """

    faults: list[Fault] = field(default_factory=list)
    seconds: float = 0.0


def run(problems: int, workers: int, faults: Sequence[str], heartbeat_seconds: float, chance: random.Random,
        most_seconds: float, say: Callable[[str], None] = print) -> tuple[Storm, Audit]:  # fmt: skip
    """Runs a storm, then audits the tables.

    Args:
        faults: their kinds, in the order in which they strike.

    Raises:
        TimeoutError: the campaign did not end in time.
    """
    storm = Storm()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        both, url = stack.enter_context(replicated())
        shapes = plant(folder / "recorded" / "h200", problems, _CANDIDATES)
        store = stack.enter_context(Store.open(both.url(url, both.spectators)))
        ports: list[int] = []
        front = stack.enter_context(ReportingProxy(lambda: _some(ports)))
        # Candidates take as long as on a GPU, so that faults hit workers that hold rounds.
        fleet = Fleet(folder, both.url(url, both.clients), heartbeat_seconds, "recorded:h200:realtime", _SERVICES,
                      f"http://127.0.0.1:{front.port}")  # fmt: skip
        ports += fleet.ports
        stack.callback(fleet.stop)
        fleet.workers = [fleet.start_worker() for _ in range(workers)]
        campaign = begin_campaign(store, shapes)
        watches = [stack.enter_context(Watch(f"http://127.0.0.1:{port}")) for port in ports]
        while not all(watch.recovered for watch in watches):
            time.sleep(0.1)
        _, thief_secret = tokens.make(store, "thief", ["work"])
        _, flood_secret = tokens.make(store, "flood", ["read", "submit"])
        thief = Thief(f"http://127.0.0.1:{front.port}", store, thief_secret, fleet.secret)
        weather = Weather(fleet, both, front, store, flood_secret, chance)
        stack.callback(weather.calm)
        started = time.monotonic()
        with thief:
            for _ in _looks(started + most_seconds):
                fleet.keep()
                done, ended = _stands(store, campaign)
                if ended:
                    break
                # Spreads the faults over the campaign, in proportion to the completed problems.
                struck = len(storm.faults)
                due = struck < len(faults) and done * len(faults) >= struck * problems * 0.9
                if due and weather.may_strike():
                    storm.faults.append(weather.strike(faults[struck]))
                    say(f"{time.monotonic() - started:6.1f} s  {done}/{problems} ended  {storm.faults[-1].kind}")
        storm.seconds = time.monotonic() - started
        weather.calm()
        recovered = [moment for watch in watches for moment in watch.recovered] + weather.recovered
        hit = [(fault.kind, fault.at, fault.problem_key) for fault in storm.faults]
        told = Told(_CANDIDATES, dict(front.taken), thief.statuses.total(), thief.accepted)
        return storm, audit(store, campaign, hit, 2 * heartbeat_seconds + 5, recovered, told)


def _some(ports: list[int]) -> socket.socket:
    """A connection to a service, or to another one while that is down."""
    for port in random.sample(ports, len(ports)):
        with suppress(OSError):
            return socket.create_connection(("127.0.0.1", port), 5)
    raise OSError("no service listens")


def _looks(until: float) -> Iterator[None]:
    while time.monotonic() < until:
        yield
        time.sleep(0.1)
    raise TimeoutError("the campaign did not end in time")


def begin_campaign(store: Store, problems: list[Gemm], candidates: int = _CANDIDATES) -> int:
    """Creates the campaign and returns its number."""
    budget = CampaignBudget(candidates=candidates, rounds=11)
    request = CampaignRequest("storm", tuple(problems), (("NVIDIA H200", "recorded"),), budget)
    return Campaigns(store).create(request)[0].id


def _stands(store: Store, campaign_id: int) -> tuple[int, bool]:
    """How many problems have ended, and whether the campaign has."""
    with suppress(StoreError):
        progress = results.progress(store, campaign_id)
        found = progress.problems
        ended = progress.campaign.status is CampaignStatus.FINISHED
        return found["done"] + found["parked"] + found["skipped"], ended
    return 0, False


def report(storms: dict[int, tuple[Storm, Audit]], options: argparse.Namespace) -> str:
    """The report as Markdown, one column a seed."""
    seeds = list(storms)
    kinds = sorted({fault.kind for storm, _ in storms.values() for fault in storm.faults})
    counts = [Counter(fault.kind for fault in storm.faults) for storm, _ in storms.values()]
    heading = [*(f"seed {seed}" for seed in seeds), "all"]
    lines = [
        f"Each storm: {options.problems} problems of {_CANDIDATES} candidates, {_SERVICES} services, {options.workers} "
        f"workers on the recorded device, heartbeat {options.heartbeat:g} s; PostgreSQL with a synchronous standby.",
        "", f"| fault | {' | '.join(heading)} |", "| --- |" + " --- |" * len(heading),
        *(_row(kind, [count[kind] for count in counts]) for kind in kinds),
        _row("all", [count.total() for count in counts]),
        "", "| what has to hold | seed | found | holds |", "| --- | --- | --- | --- |",
    ]  # fmt: skip
    for place in range(len(storms[seeds[0]][1].checks)):
        for seed, (_, found) in storms.items():
            check = found.checks[place]
            lines.append(f"| {check.what} | {seed} | {check.found} | {'yes' if check.holds else '**no**'} |")
    took = ", ".join(f"{storm.seconds:.0f} s" for storm, _ in storms.values())
    return "\n".join([*lines, "", f"The campaigns ended after {took}."])


def _row(name: str, counts: list[int]) -> str:
    return f"| {name} | {' | '.join(map(str, [*counts, sum(counts)]))} |"


def main() -> None:
    """Runs a storm a seed, prints their table, and fails if a check does not hold."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--problems", type=positive, default=60)
    options.add_argument("--workers", type=positive, default=4)
    options.add_argument("--faults", type=int, default=30)
    options.add_argument("--heartbeat", type=float, default=5.0)
    options.add_argument("--seeds", type=int, nargs="+", default=[0])
    options.add_argument("--seconds", type=float, default=3_600.0, help="give up a storm after these")
    add_out(options)
    given = options.parse_args()
    storms = {}
    for seed in given.seeds:
        print(f"seed {seed}", flush=True)
        chance = random.Random(seed)
        faults = planned(chance, given.faults)
        storms[seed] = run(given.problems, given.workers, faults, given.heartbeat, chance, given.seconds)
        print(report({seed: storms[seed]}, given), flush=True)
    text = report(storms, given)
    print(text)
    publish("storm", given.out, text)
    if not all(check.holds for _, found in storms.values() for check in found.checks):
        sys.exit(1)


if __name__ == "__main__":
    as_command(main)
