"""Checks of a fleet's database, queue, workers and problems for `gemmtune doctor`: read-only, safe while it runs.

What a running service repairs within seconds is reported only if it is still there on a second look.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final, Literal

import httpx2
from sqlalchemy import exists, func, select, text
from sqlalchemy.engine import make_url
from sqlalchemy.orm import aliased

from tuner.errors import FleetError, StoreError
from tuner.evidence.campaign_models import CampaignProblemRow, CampaignRow
from tuner.evidence.database import connect, shown
from tuner.evidence.revisions import newest_revision
from tuner.evidence.store import Store
from tuner.fleet.campaigns.clock import now
from tuner.fleet.campaigns.records import Timing
from tuner.fleet.campaigns.statistics import fleet_statistics
from tuner.fleet.campaigns.sweep import ROUNDLESS
from tuner.fleet.campaigns.workers import Workers
from tuner.fleet.queue.choice import queue_of
from tuner.fleet.service_client import carried, fleet_error, http_client, service_url
from tuner.fleet.unanswered import unanswered

#: Larger differences between clocks mislead readers of logs; no decision depends on them.
_SKEW_SECONDS: Final = 5.0
_LOW_BYTES: Final = 2 * 10**9
_MOST_NAMED: Final = 3
_MOST_WORKERS: Final = 100_000
#: Longer than a sweep takes to repair a mismatch.
_SETTLE_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Check:
    """One line of `gemmtune doctor`.

    Attributes:
        state: `ok`; `absent` if something optional is missing; `warning` if it works but needs attention; `broken`.
        found: the finding, in one sentence.
        fix: what to do; empty if ok.
    """

    name: str
    state: Literal["ok", "absent", "warning", "broken"]
    found: str
    fix: str = ""


def service_check(url: str, token: str | None) -> Check:
    """Checks the service that this machine's workers and commands call."""
    if token and not carried(token):
        return Check(
            "service", "broken", "the token has a character that no token has, such as a line break or a space",
            "set GEMMTUNE_TOKEN_FILE to a file with what `gemmtune token create` printed, alone",
        )  # fmt: skip
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        parsed, url = service_url(url, bool(token), fleet_error)
        with http_client(parsed, headers, 10) as http:
            ready, asked = http.get("/readyz"), http.get("/v1/devices")
    except FleetError as error:
        return Check("service", "broken", str(error), "see the sentence")
    except httpx2.HTTPError as error:
        failed, fix = unanswered(error, parsed)
        return Check("service", "broken", f"{url} {failed}", f"check GEMMTUNE_URL and firewall; {fix}")
    if ready.status_code != 200:
        return Check("service", "broken", f"{url} is not ready: {_detail(ready)}", "see its log, and doctor there")
    if asked.status_code == 401:
        return Check(
            "service", "broken", f"{url} is ready and refuses the token: {_detail(asked)}",
            "set GEMMTUNE_TOKEN_FILE to a token of `gemmtune token create NAME --scope work`",
        )  # fmt: skip
    if not _says(ready, "status") or (asked.status_code == 200 and not _says(asked, "items")):
        return Check("service", "broken", f"{url} answers, but not as gemmtune does", "check GEMMTUNE_URL and its port")
    skew = 0.0
    with suppress(KeyError, ValueError):
        skew = (parsedate_to_datetime(ready.headers["date"]) - datetime.now(UTC)).total_seconds()
    if abs(skew) > _SKEW_SECONDS:
        return Check(
            "service", "warning", f"{url} is ready; its clock is {skew:+.0f} s from this machine's", "run NTP on both"
        )
    said = "accepts the token" if token else "requires no token"
    return Check("service", "ok", f"{url} is ready and {said}, {ready.elapsed.total_seconds() * 1e3:.0f} ms away")


def fleet_checkup(url: str, timing: Timing, settle: Callable[[float], None] = time.sleep) -> list[Check]:
    """Runs every check of one database; changes nothing and never raises.

    Args:
        settle: waits between two looks at the queue.
    """
    try:
        engine = connect(url, create=False)
    except StoreError as error:
        gone = "is not there" in str(error)
        return [Check("database", "absent" if gone else "broken", str(error), "" if gone else "see the sentence")]
    with Store(engine) as store:
        try:
            return list(_checks(store, url, timing, settle))
        except StoreError as error:
            return [Check("database", "broken", str(error), "see the sentence")]


def _checks(store: Store, url: str, timing: Timing, settle: Callable[[float], None]) -> Iterator[Check]:
    started = time.perf_counter()
    revision = store.revision()
    yield Check("database", "ok", f"{shown(url)} answers within {(time.perf_counter() - started) * 1e3:.0f} ms")
    head = newest_revision()
    if revision == "none":
        yield Check("schema", "absent", "no tables yet", "`gemmtune serve` creates them")
    elif revision != head:
        fix = "the next start of `gemmtune serve` upgrades it; run `gemmtune backup` first"
        if not revision.isdigit() or int(revision) > int(head):
            fix = "a newer gemmtune wrote it: upgrade this one"
        yield Check("schema", "warning", f"{revision}, this version has {head}", fix)
    else:
        yield Check("schema", "ok", f"{head}, this version's")
        counts = store.counts()
        told = ("best", "measurement", "campaign", "campaign_problem", "round", "worker", "build", "token")
        yield Check("contents", "ok", "rows: " + ", ".join(f"{name} {counts[name]:,}" for name in told))
        yield _clock(store)
        if counts["campaign"] or counts["worker"]:
            yield from (_queue(store, settle), _workers(store, timing), _problems(store))
        yield _disk(store, url)


def _clock(store: Store) -> Check:
    with store.transaction() as session:
        skew = (now(session) - datetime.now(UTC)).total_seconds()
    if abs(skew) > _SKEW_SECONDS:
        return Check("clock", "warning", f"the database's is {skew:+.0f} s from this machine's", "run NTP on both")
    return Check("clock", "ok", f"the database's is {abs(skew):.1f} s from this machine's")


def _queue(store: Store, settle: Callable[[float], None]) -> Check:
    found = _mismatches(store)
    if found:
        settle(_SETTLE_SECONDS)
        found &= _mismatches(store)
    counts = Counter[str]()
    for (_, status), count in fleet_statistics(store).rounds.items():
        counts[status] += count
    state = f"rounds: {counts['queued']} queued, {counts['running']} running"
    if not found:
        return Check("queue", "ok", f"{state}; the queue and the tables agree")
    said = "; ".join(sorted(found)[:_MOST_NAMED])
    fix = "a running service repairs it within 15 s: start one, and read its log if this persists"
    return Check("queue", "broken", f"{state}; the queue and the tables disagree ({len(found)} ×): {said}", fix)


def _mismatches(store: Store) -> set[str]:
    """Where queue, rounds and problems disagree now; transactions under way may show up once."""
    with store.transaction() as session:
        roundless = session.scalars(select(CampaignProblemRow.id).where(*ROUNDLESS))
        return {f"open without a round: problem {number}" for number in roundless} | set(
            queue_of(store).mismatches(session)
        )


def _workers(store: Store, timing: Timing) -> Check:
    present = Workers(store, timing).page(limit=_MOST_WORKERS)
    open_ = CampaignProblemRow.status.in_(("waiting", "open"))
    queues = select(CampaignProblemRow.queue).join(CampaignRow, CampaignRow.id == CampaignProblemRow.campaign_id)
    with store.transaction() as session:
        moment = now(session)
        needed = set(session.scalars(queues.where(CampaignRow.status == "running", open_).distinct()))
    silence = timedelta(seconds=2 * timing.silence_seconds)
    if silent := [worker.name for worker in present if moment - worker.beat_at > silence]:
        return Check(
            "workers", "broken", f"{_named(silent)} went silent, and no service has noticed",
            "no service sweeps this database: start `gemmtune serve`",
        )  # fmt: skip
    if missing := sorted(needed - {worker.queue for worker in present if worker.status != "draining"}):
        return Check(
            "workers", "broken", f"problems wait for {_named(missing)}, and no worker serves it that stays",
            "start `gemmtune worker run` on such a device",
        )  # fmt: skip
    if not present:
        return Check("workers", "absent", "none live, and nothing waits for one")
    last = max((moment - worker.beat_at).total_seconds() for worker in present)
    draining = sum(worker.status == "draining" for worker in present)
    said = f"{len(present)} live, {draining} of them draining; each heard within the last {max(last, 0):.1f} s"
    return Check("workers", "ok", said)


def _problems(store: Store) -> Check:
    later = aliased(CampaignProblemRow)
    tried_again = exists().where(
        later.problem_id == CampaignProblemRow.problem_id, later.device_id == CampaignProblemRow.device_id,
        later.id > CampaignProblemRow.id, later.status != "skipped",
    )  # fmt: skip
    with store.transaction() as session:
        rows = session.execute(
            select(CampaignProblemRow.campaign_id, func.count())
            .where(CampaignProblemRow.status == "parked", ~tried_again)
            .group_by(CampaignProblemRow.campaign_id)
            .order_by(CampaignProblemRow.campaign_id)
        ).all()
    if not rows:
        return Check("problems", "ok", "none that its last campaign parked")
    parked = [f"{count} of campaign {campaign}" for campaign, count in rows]
    number = rows[-1][0]
    return Check(
        "problems", "warning", f"parked: {sum(count for _, count in rows)}, {_named(parked)}",
        f"`gemmtune campaign results {number}` shows each reason; a new campaign tries them again",
    )  # fmt: skip


def _disk(store: Store, url: str) -> Check:
    if not store.embedded:
        with store.transaction() as session:
            size = session.scalar(text("SELECT pg_database_size(current_database())")) or 0
        return Check("disk", "ok", f"the database is {size / 1e6:,.0f} MB; the server's free space is unknown")
    path = Path(make_url(url).database or "")
    free = os.statvfs(path.parent)
    left, size = free.f_bavail * free.f_frsize, path.stat().st_size
    said = f"{path} is {size / 1e6:,.0f} MB, {left / 1e9:,.0f} GB are free"
    if left < _LOW_BYTES:
        return Check("disk", "warning", said, "free space: a full disk keeps no measurements")
    return Check("disk", "ok", said)


def _says(answer: httpx2.Response, member: str) -> bool:
    """Whether a response is JSON with a member: a proxy's page to log in comes with status 200 too."""
    try:
        return member in answer.json()
    except (ValueError, TypeError, RecursionError):
        return False


def _detail(answer: httpx2.Response) -> str:
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"status {answer.status_code}"


def _named(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
