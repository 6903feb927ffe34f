"""The feed: changes of the store since the last look, as events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

import orjson
from sqlalchemy import Select, bindparam, func, or_, select
from sqlalchemy.orm import Session

from tuner.evidence import best_changes, codec
from tuner.evidence.campaign_models import CampaignProblemRow, CampaignRow, RoundRow, WorkerRow
from tuner.evidence.changes import replaced
from tuner.evidence.models import BestRow, ConfigRow, DeviceRow, MeasurementRow, ProblemRow, RevocationRow, RevokedRow
from tuner.evidence.physics import in_range
from tuner.evidence.store import Store
from tuner.fleet.campaigns.clock import now
from tuner.fleet.campaigns.workers import Workers
from tuner.views.columnar import rows_of
from tuner.views.rounds import ProgressBoard, facts, selected

#: More changes of bests at once become one event with their number.
MOST_BESTS: Final = 200
#: Most problems that an event of new measurements names; of more it names none.
MOST_PROBLEMS: Final = 50
#: Commits may become visible a little out of order: rounds that ended so long before the last look are read again.
_OVERLAP: Final = timedelta(seconds=5)
#: Ended rounds that were reported.
_MOST_TOLD: Final = 20_000
_Item = CampaignProblemRow
#: Id, name and status.
_Campaign = tuple[int, str, str]
#: The query of every look. Building a statement takes longer than running it.
_ROUNDS: Final = (
    selected().where(or_(RoundRow.status == "running", RoundRow.ended_at >= bindparam("since"))).order_by(RoundRow.id)
)
#: Also those that came and went since the last look: a page may have read them in between.
_WORKERS: Final = select(WorkerRow.id, WorkerRow.status).where(
    or_(WorkerRow.status != "gone", WorkerRow.id > bindparam("last"),
        WorkerRow.id.in_(bindparam("seen", expanding=True)))
)  # fmt: skip
_CAMPAIGNS: Final = select(CampaignRow.id, CampaignRow.name, CampaignRow.status).where(
    or_(CampaignRow.status.in_(("running", "paused")), CampaignRow.id > bindparam("last"),
        CampaignRow.id.in_(bindparam("seen", expanding=True)))
)  # fmt: skip
#: The ids before those of a first look, which tells of nothing that ended earlier.
_NEWEST: Final = select(
    select(func.max(WorkerRow.id)).scalar_subquery(), select(func.max(CampaignRow.id)).scalar_subquery()
)
#: Campaigns among these that have problems which did not end.
_LEFT: Final = select(CampaignRow.id).where(
    CampaignRow.id.in_(bindparam("campaigns", expanding=True)),
    select(_Item.id).where(_Item.campaign_id == CampaignRow.id, _Item.status.in_(("waiting", "open"))).exists(),
)
#: Problems of new measurements, and of those that were revoked.
_MEASURED, _DOUBTED = (
    select(ProblemRow.key).where(ProblemRow.id.in_(numbers)).limit(MOST_PROBLEMS + 1)
    for numbers in (
        select(MeasurementRow.problem_id).where(MeasurementRow.id > bindparam("last")),
        select(MeasurementRow.problem_id).join(RevokedRow, RevokedRow.measurement_id == MeasurementRow.id)
        .where(RevokedRow.revocation_id > bindparam("last")),
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Event:
    """One change.

    Attributes:
        device, campaign: what it is about; None where it is about neither, or about several.
    """

    name: str
    data: dict[str, Any]
    device: str | None = None
    campaign: int | None = None


@dataclass(slots=True)
class _Seen:
    """What the last look saw.

    Attributes:
        since: None before the first look.
        rounds: status of each, and when its progress was told.
        workers: status of each that is not gone.
        campaigns: documents of those that have problems which did not end.
        last_id, last_revocation, last_worker, last_campaign: the highest ids.
    """

    changes: dict[str, int] = field(default_factory=dict)
    last_id: int = 0
    last_revocation: int = 0
    since: datetime | None = None
    rounds: dict[int, tuple[str, datetime | None]] = field(default_factory=dict)
    workers: dict[int, str] = field(default_factory=dict)
    campaigns: dict[int, bytes] = field(default_factory=dict)
    last_worker: int = 0
    last_campaign: int = 0

    def copied(self) -> _Seen:
        """A copy that a look may change."""
        return replace(self, rounds=dict(self.rounds), workers=dict(self.workers), campaigns=dict(self.campaigns))


class Feed:
    """Compares the store with its earlier state.

    Args:
        catch_up: called before anything is told: whoever hears of a best, or of a round that ended, asks at once, and
            answers must know it by then.

    Attributes:
        replaced: the last look found an older store than the one before, as after a restore. No event tells what is
            different in it.
    """

    def __init__(
        self, store: Store, workers: Workers, board: ProgressBoard,
        catch_up: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._store, self._workers, self._board, self._catch_up = store, workers, board, catch_up
        self._seen = _Seen()
        self.replaced = False

    def poll(self) -> list[Event]:
        """The changes since the last look; none the first time, or where the store was replaced.

        Raises:
            StoreError: the store can't be read; the next look tells what this one would have.
        """
        before, self._seen = self._seen, self._seen.copied()
        try:
            return self._look()
        except BaseException:
            self._seen = before
            raise

    def _look(self) -> list[Event]:
        changes = self._store.changed()
        self.replaced = replaced(self._seen.changes, changes)
        if self.replaced:
            self._seen = _Seen()
        seen = self._seen
        first = seen.since is None
        with self._store.transaction() as session:
            if first:
                seen.last_worker, seen.last_campaign = (newest or 0 for newest in session.execute(_NEWEST).one())
            events = [*self._bests(session, changes["best"]), *self._measurements(session, changes["measurement"]),
                      *self._rounds_of(session)]  # fmt: skip
            joined = self._workers_changed(session, first)
            known = {"seen": list(seen.campaigns), "last": seen.last_campaign}
            campaigns = session.connection().execute(_CAMPAIGNS, known).all()
            seen.last_campaign = max([seen.last_campaign, *(number for number, _, _ in campaigns)])
            emptied = self._emptied(session, campaigns)
            if first or emptied or any(event.name == "round" for event in events) or self._changed(campaigns):
                events += list(self._campaigns_of(session, campaigns))
        if first or events:
            # A round may have ended, with a best, after the look at the numbers.
            self._catch_up()
        for number in joined:
            for worker in self._workers.page(number - 1, 1, gone=True):
                events.append(Event("worker", _plain(worker), worker.device))
        seen.changes = changes
        return [] if first else events

    def _bests(self, session: Session, version: int) -> Iterator[Event]:
        seen = self._seen.changes.get("best", version)
        if version == seen:
            return
        query = (
            select(BestRow.version, ProblemRow.key, DeviceRow.name, BestRow.policy, BestRow.measurement_id,
                   BestRow.versus_first, BestRow.versus_best, MeasurementRow.median_us, ConfigRow.family)
            .join(BestRow.problem).join(BestRow.device)
            .join(MeasurementRow, MeasurementRow.id == BestRow.measurement_id)
            .join(ConfigRow, ConfigRow.id == MeasurementRow.config_id)
            .where(BestRow.served, BestRow.version > seen, BestRow.version <= version)
            .order_by(BestRow.version).limit(MOST_BESTS + 1)
        )  # fmt: skip
        rows = session.execute(query).all()
        removed = best_changes.removed_between(session, seen, version, MOST_BESTS + 1)
        if len(rows) + len(removed) > MOST_BESTS:
            yield Event("best", {"many": version - seen, "version": version})
            return
        events = list[Event]()
        for number, key, device, policy, measurement, first, best, median_us, family in rows:
            ratios = {name: ratio.value if (ratio := codec.ratio(content)) else None
                      for name, content in (("first", first), ("best", best))}  # fmt: skip
            events.append(Event("best", {
                "device": device, "problem": key, "policy": policy, "version": number, "measurement_id": measurement,
                "time_us": median_us if in_range(median_us) else None, "family": family, **ratios,
            }, device))  # fmt: skip
        for number, gone in removed:
            events.append(Event("best", {"device": gone.device, "problem": gone.problem_key, "version": number,
                                         "removed": True}, gone.device))  # fmt: skip
        # As they happened: what is served after a removal comes after it.
        yield from sorted(events, key=lambda event: int(event.data["version"]))

    def _measurements(self, session: Session, count: int) -> Iterator[Event]:
        if count == self._seen.changes.get("measurement", -1):
            return
        last = session.scalar(select(func.max(MeasurementRow.id))) or 0
        new = session.scalar(select(func.count(MeasurementRow.id)).where(MeasurementRow.id > self._seen.last_id)) or 0
        if self._seen.changes and last != self._seen.last_id:
            problems = self._problems_of(session, _MEASURED, self._seen.last_id)
            yield Event("measurements", {"last_id": last, "count": new, "problems": problems})
        self._seen.last_id = last
        yield from self._revoked(session)

    def _revoked(self, session: Session) -> Iterator[Event]:
        """What a page shows may be revoked and no best: nothing else tells of it."""
        before = self._seen.last_revocation
        self._seen.last_revocation = session.scalar(select(func.max(RevocationRow.id))) or 0
        if self._seen.changes and self._seen.last_revocation > before:
            theirs = select(func.count(RevokedRow.measurement_id)).where(RevokedRow.revocation_id > before)
            if count := session.scalar(theirs):
                yield Event("revoked", {"count": count, "problems": self._problems_of(session, _DOUBTED, before)})

    def _problems_of(self, session: Session, query: Select[str], last: int) -> list[str] | None:
        """Keys of the problems of a query; None if there are too many."""
        keys = [key for (key,) in rows_of(session.connection().execute(query, {"last": last}))]
        return sorted(keys) if 0 < len(keys) <= MOST_PROBLEMS else None

    def _rounds_of(self, session: Session) -> Iterator[Event]:
        moment = now(session)
        since = (self._seen.since or moment) - _OVERLAP
        self._seen.since = moment
        changed = []
        for each in facts(session, _ROUNDS, self._board, {"since": since}):
            state = each.status, each.progress.at if each.progress else None
            if self._seen.rounds.get(each.id) != state:
                self._seen.rounds[each.id] = state
                changed.append(each)
        while len(self._seen.rounds) > _MOST_TOLD:
            del self._seen.rounds[next(iter(self._seen.rounds))]
        if not changed:
            return
        problems = list(self._problems(session, {each.campaign_problem_id for each in changed}))
        devices = {event.data["id"]: event.device for event in problems}
        for each in changed:
            yield Event("round", _plain(each), devices.get(each.campaign_problem_id), each.campaign_id)
        yield from problems

    def _problems(self, session: Session, ids: set[int]) -> Iterator[Event]:
        query = (
            select(_Item.id, _Item.campaign_id, ProblemRow.key, DeviceRow.name, _Item.status, _Item.tried,
                   _Item.versus_first, MeasurementRow.median_us)
            .join(_Item.problem).join(_Item.device)
            .outerjoin(MeasurementRow, MeasurementRow.id == _Item.measurement_id).where(_Item.id.in_(ids))
        )  # fmt: skip
        for number, campaign, key, device, status, tried, first, median_us in session.execute(query):
            ratio = codec.ratio(first)
            yield Event("problem", {
                "campaign_id": campaign, "id": number, "key": key, "device": device, "status": status, "tried": tried,
                "median_us": median_us if in_range(median_us) else None, "first": ratio.value if ratio else None,
                "first_low": ratio.low if ratio else None, "first_high": ratio.high if ratio else None,
            }, device, campaign)  # fmt: skip

    def _workers_changed(self, session: Session, first: bool) -> list[int]:
        """Workers that have another status than before."""
        known = {"seen": list(self._seen.workers), "last": self._seen.last_worker}
        status = {number: said for number, said in session.connection().execute(_WORKERS, known)}
        seen = status if first else self._seen.workers
        changed = sorted(number for number, said in status.items() if seen.get(number) != said)
        self._seen.last_worker = max([self._seen.last_worker, *status])
        self._seen.workers = {number: said for number, said in status.items() if said != "gone"}
        return changed

    def _changed(self, campaigns: Sequence[_Campaign]) -> bool:
        """Whether a campaign was created, or has another status."""
        return any(
            number not in self._seen.campaigns or orjson.loads(self._seen.campaigns[number])["status"] != status
            for number, _, status in campaigns
        )

    def _emptied(self, session: Session, campaigns: Sequence[_Campaign]) -> bool:
        """Whether a cancelled campaign's last problems were skipped, which no round tells."""
        cancelled = [number for number, _, status in campaigns if status == "cancelled"]
        if not cancelled:
            return False
        left = session.connection().execute(_LEFT, {"campaigns": cancelled})
        return len(rows_of(left)) < len(cancelled)

    def _campaigns_of(self, session: Session, rows: Sequence[_Campaign]) -> Iterator[Event]:
        sums = func.sum(_Item.tried), func.sum(_Item.gpu_seconds)
        totals = select(_Item.campaign_id, _Item.status, func.count(), *sums)
        counted = session.execute(
            totals.where(_Item.campaign_id.in_([row[0] for row in rows])).group_by(_Item.campaign_id, _Item.status)
        ).all()
        for number, name, status in rows:
            problems, tried, seconds = Counter[str](), 0, 0.0
            for campaign, each, count, tried_there, seconds_there in counted:
                if campaign == number:
                    problems[each] += count
                    tried, seconds = tried + int(tried_there), seconds + float(seconds_there)
            data = {"id": number, "name": name, "status": status, "problems": dict(problems), "tried": tried,
                    "gpu_seconds": seconds}  # fmt: skip
            text = orjson.dumps(data, option=orjson.OPT_SORT_KEYS)
            if self._seen.campaigns.get(number) != text:
                self._seen.campaigns[number] = text
                yield Event("campaign", data, campaign=number)
            # Problems of a cancelled one are skipped a little later, and open ones end with their rounds.
            if status == "finished" or (status == "cancelled" and not (problems["waiting"] or problems["open"])):
                del self._seen.campaigns[number]


def _plain(value: object) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(orjson.dumps(value))
    return found
