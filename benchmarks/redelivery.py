"""Measures how soon a round restarts after its worker is killed or stopped, with a healthy service and database.

    python -m benchmarks.redelivery --kills 12 --stops 8 --heartbeat 5 --out benchmarks/results/F.md

The fleet is that of `benchmarks.storm`; its candidates take as long as on a GPU. The promise is two heartbeats plus
5 s.
"""

from __future__ import annotations

import argparse
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Container
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from sqlalchemy import select

from benchmarks.command import as_command, positive
from benchmarks.postgres import running_postgres
from benchmarks.published import add_out, publish
from benchmarks.storm import begin_campaign
from benchmarks.storm_fleet import Fleet, running
from benchmarks.storm_recordings import plant
from benchmarks.waiting import until, within
from tuner.evidence.campaign_models import CampaignProblemRow, RoundRow
from tuner.evidence.codec import utc
from tuner.evidence.models import ProblemRow
from tuner.evidence.store import Store
from tuner.fleet.campaigns import results
from tuner.fleet.campaigns.records import CampaignStatus

_CANDIDATES: Final = 200
_COMPILED_SECONDS: Final = 300.0


def main() -> None:
    """Kills, waits, prints the table, and fails if a round restarted too late."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--kills", type=int, default=12)
    options.add_argument("--stops", type=int, default=8)
    options.add_argument("--workers", type=positive, default=3)
    options.add_argument("--heartbeat", type=float, default=5.0)
    options.add_argument("--seed", type=int, default=0)
    add_out(options)
    given = options.parse_args()
    limit = 2 * given.heartbeat + 5
    took = measure(given.kills, given.stops, given.workers, given.heartbeat, random.Random(given.seed))
    lines = [
        f"{given.workers} workers, heartbeat {given.heartbeat:g} s: the promise is {limit:g} s.",
        "", "| a worker that holds a round is | times | begins anew after, median | longest |",
        "| --- | --- | --- | --- |",
    ]  # fmt: skip
    for fault, word in ((signal.SIGKILL, "killed -9"), (signal.SIGSTOP, "stopped")):
        if found := took[fault]:
            lines.append(f"| {word} | {len(found)} | {statistics.median(found):.1f} s | {max(found):.1f} s |")
    text = "\n".join(lines)
    print(text)
    publish("redelivery", given.out, text)
    if max(seconds for found in took.values() for seconds in found) > limit:
        sys.exit(1)


def measure(
    kills: int, stops: int, workers: int, heartbeat_seconds: float, chance: random.Random
) -> dict[signal.Signals, list[float]]:
    """Seconds from each fault until its round restarted, by signal."""
    faults = [signal.SIGKILL] * kills + [signal.SIGSTOP] * stops
    chance.shuffle(faults)
    took: dict[signal.Signals, list[float]] = {signal.SIGKILL: [], signal.SIGSTOP: []}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        postgres = stack.enter_context(running_postgres(durable=True))
        shapes = plant(folder / "recorded" / "h200", 20 * len(faults), _CANDIDATES)
        url = postgres.database()
        store = stack.enter_context(Store.open(url))
        fleet = Fleet(folder, url, heartbeat_seconds, "recorded:h200:realtime")
        stack.callback(fleet.stop)
        fleet.workers = [fleet.start_worker() for _ in range(workers)]
        campaign = begin_campaign(store, shapes, _CANDIDATES)
        # Until the programs are compiled every other worker may be busy with them for longer than the promise.
        with within(_COMPILED_SECONDS, "a problem is done", folder):
            until(lambda: results.progress(store, campaign).problems["done"] > 0)
        struck = set[str]()
        while faults:
            place, key = hit(store, campaign, fleet, chance, struck)
            struck.add(key)
            fleet.workers[place].send_signal(faults[0])
            at = datetime.now(UTC)
            anew = claimed_again(store, key, at)
            if anew is not None:
                fault = faults.pop(0)
                took[fault].append((anew - at).total_seconds())
                print(f"{fault.name}: {took[fault][-1]:.1f} s", flush=True)
            fleet.workers[place].kill()
            fleet.workers[place].wait()
            fleet.workers[place] = fleet.start_worker()
    return took


def hit(store: Store, campaign: int, fleet: Fleet, chance: random.Random, spared: Container[str]) -> tuple[int, str]:
    """A worker process that holds a round, and its problem.

    Args:
        spared: problems to spare: a problem that is lost three times in a row is parked and never restarts.

    Raises:
        RuntimeError: the campaign ended.
    """
    while True:
        if results.progress(store, campaign).campaign.status is CampaignStatus.FINISHED:
            raise RuntimeError("the campaign ended before all faults were made: give it more problems")
        held = dict(running(store))
        places = [(place, held[name]) for place, process in enumerate(fleet.workers)
                  for name, key in held.items()
                  if name.endswith(f"-{process.pid}") and key not in spared]  # fmt: skip
        if places:
            return chance.choice(places)
        time.sleep(0.05)


def claimed_again(store: Store, problem_key: str, at: datetime) -> datetime | None:
    """When a problem's next round was claimed; None if its last one had just been reported."""
    query = select(RoundRow.claimed_at).join(ProblemRow).where(ProblemRow.key == problem_key)
    status = select(CampaignProblemRow.status).join(ProblemRow).where(ProblemRow.key == problem_key)
    while True:
        with store.transaction() as session:
            claims = [utc(found) for found in session.scalars(query) if found and utc(found) > at]
            ended = session.scalar(status) not in ("waiting", "open")
        if claims or ended:
            return min(claims, default=None)
        time.sleep(0.05)


if __name__ == "__main__":
    as_command(main)
