"""Results: progress and gain of a campaign, its failures, and its problems one by one."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import func, select
from sqlalchemy.orm import Session, joinedload

from tuner.errors import NewerContent
from tuner.evidence import codec
from tuner.evidence.campaign_models import CampaignProblemRow, CampaignRow, RoundRow, WorkerRow
from tuner.evidence.codec import utc
from tuner.evidence.models import ConfigRow, DeviceRow, MeasurementRow, RevokedRow
from tuner.evidence.picks import LIBRARY
from tuner.evidence.store import Store
from tuner.fleet.campaigns.campaigns import campaign_of, row_of
from tuner.fleet.campaigns.clock import now
from tuner.fleet.campaigns.gain import gain_of, won_of
from tuner.fleet.campaigns.records import (
    Campaign,
    CampaignProblem,
    CampaignStatus,
    ProblemStatus,
    Progress,
    Summary,
)

#: Rates cover the rounds that ended within this time, so they follow workers that come and go.
_RECENT: Final = timedelta(minutes=5)
Item = CampaignProblemRow


def progress(store: Store, campaign_id: int) -> Progress:
    """How far a campaign has come.

    Raises:
        UnknownCampaign: no campaign has this id.
    """
    with store.transaction() as session:
        return _progress(session, campaign_of(row_of(session, campaign_id)))


def newest(store: Store, limit: int) -> list[Progress]:
    """Progress of the newest campaigns, newest first."""
    with store.transaction() as session:
        rows = session.scalars(select(CampaignRow).order_by(CampaignRow.id.desc()).limit(limit)).all()
        return [_progress(session, campaign_of(row)) for row in rows]


def summary(store: Store, campaign_id: int) -> Summary:
    """A campaign's results so far.

    Raises:
        UnknownCampaign: no campaign has this id.
    """
    with store.transaction() as session:
        campaign = campaign_of(row_of(session, campaign_id))
        of_campaign = (
            select(
                Item.versus_first, ConfigRow.family, DeviceRow.kind, Item.count, MeasurementRow.median_us,
                RevokedRow.measurement_id,
            )
            .join(DeviceRow, DeviceRow.id == Item.device_id)
            .join(MeasurementRow, MeasurementRow.id == Item.measurement_id)
            .join(ConfigRow, ConfigRow.id == MeasurementRow.config_id)
            .outerjoin(RevokedRow, RevokedRow.measurement_id == Item.measurement_id)
            .where(Item.campaign_id == campaign_id, Item.status == "done")
        )  # fmt: skip
        done = session.execute(of_campaign).all()
        standing = [row[:-1] for row in done if row[-1] is None]
        compared = [
            (ratio, family, count, median_us)
            for found, family, _, count, median_us in standing
            if (ratio := codec.ratio(found))
        ]
        gain = gain_of([ratio for ratio, family, _, _ in compared if family != LIBRARY])
        library_won = sum(family == LIBRARY for _, family, _, _, _ in standing)
        replayed = sum(kind == "recorded" for _, _, kind, *_ in done)
        most = session.scalar(select(func.max(Item.count)).where(Item.campaign_id == campaign_id)) or 1
        won = won_of([(ratio, count, median_us) for ratio, _, count, median_us in compared]) if most > 1 else None
        parked = select(Item.reason).where(Item.campaign_id == campaign_id, Item.status == "parked")
        # Without the space, a device such as recorded:h200 would end the clause.
        reasons = Counter(reason.partition(": ")[0] for reason in session.scalars(parked))
        stands = _progress(session, campaign)
        revoked = len(done) - len(standing)
        return Summary(stands, gain, stands.failed, dict(reasons.most_common()), library_won, replayed, won, revoked)


def problems(
    store: Store,
    campaign_id: int,
    after: int = 0,
    limit: int = 100,
    status: ProblemStatus | None = None,
    since: datetime | None = None,
) -> list[CampaignProblem]:
    """A campaign's problems with an id above `after`, in order, but for those that only a newer version can read.

    Args:
        since: only problems that ended then or later.

    Raises:
        UnknownCampaign: no campaign has this id.
    """
    query = (
        select(Item, ConfigRow.key, MeasurementRow.median_us, MeasurementRow.note, RevokedRow.measurement_id)
        .outerjoin(MeasurementRow, MeasurementRow.id == Item.measurement_id)
        .outerjoin(ConfigRow, ConfigRow.id == MeasurementRow.config_id)
        .outerjoin(RevokedRow, RevokedRow.measurement_id == Item.measurement_id)
        .where(Item.campaign_id == campaign_id)
        .order_by(Item.id)
        .options(joinedload(Item.problem), joinedload(Item.device))
    )
    if status is not None:
        query = query.where(Item.status == status.value)
    if since is not None:
        query = query.where(Item.ended_at >= since)
    with store.transaction() as session:
        row_of(session, campaign_id)
        found, lacking = list[CampaignProblem](), limit
        while lacking:
            rows = session.execute(query.where(Item.id > after).limit(lacking)).all()
            for row, config_key, median_us, note, revoked in rows:
                after = row.id
                with suppress(NewerContent):
                    found.append(_problem(row, config_key or "", median_us, note or "", revoked is not None))
            # Others take the places of those that were left out.
            lacking = limit - len(found) if len(rows) == lacking else 0
        return found


def _progress(session: Session, campaign: Campaign) -> Progress:
    ours = Item.campaign_id == campaign.id
    totals = session.execute(
        select(Item.status, func.count(), func.sum(Item.tried), func.sum(Item.gpu_seconds))
        .where(ours).group_by(Item.status)
    ).all()  # fmt: skip
    counts = dict.fromkeys((status.value for status in ProblemStatus), 0)
    counts |= {status: count for status, count, _, _ in totals}
    tried = sum(int(found) for _, _, found, _ in totals)
    tried_of_left = sum(int(found) for status, _, found, _ in totals if status in ("waiting", "open"))
    still = max((counts["waiting"] + counts["open"]) * campaign.budget.candidates - tried_of_left, 0)
    rate = _rate(session, campaign)
    queues = select(Item.queue).where(ours).distinct()
    workers = select(func.count(WorkerRow.id)).where(WorkerRow.status == "live", WorkerRow.queue.in_(queues))
    running = select(func.count(RoundRow.id)).join(Item, Item.id == RoundRow.campaign_problem_id)
    failed: Counter[str] = Counter()
    for outcomes in session.scalars(select(Item.failed).where(ours, Item.tried > 0)):
        failed.update(outcomes)
    return Progress(
        campaign, counts, tried, tried + still, dict(failed.most_common()),
        float(sum(seconds for _, _, _, seconds in totals)), session.scalar(workers) or 0,
        session.scalar(running.where(ours, RoundRow.status == "running")) or 0,
        rate, still / rate if rate and campaign.status is CampaignStatus.RUNNING else None,
    )  # fmt: skip


def _rate(session: Session, campaign: Campaign) -> float | None:
    moment = now(session)
    recent = (
        select(func.sum(RoundRow.measured), func.min(RoundRow.claimed_at))
        .join(Item, Item.id == RoundRow.campaign_problem_id)
        .where(Item.campaign_id == campaign.id, RoundRow.ended_at >= moment - _RECENT, RoundRow.measured > 0)
    )
    measured, first = session.execute(recent).one()
    if not measured or first is None:
        return None
    seconds = (moment - max(utc(first), moment - _RECENT)).total_seconds()
    return float(measured) / seconds if seconds > 0 else None


def _problem(
    row: CampaignProblemRow, config_key: str, median_us: float | None, note: str, revoked: bool
) -> CampaignProblem:
    return CampaignProblem(
        row.id, row.campaign_id, codec.problem_of(row.problem.key), row.device.name, row.device.kind,
        ProblemStatus(row.status), row.attempts, row.reason, row.failing_config, row.rounds, row.tried,
        dict(row.failed), row.gpu_seconds, row.measurement_id, config_key, median_us, codec.ratio(row.versus_first),
        codec.ratio(row.versus_best), utc(row.ended_at) if row.ended_at else None, note, row.count,
        revoked,
    )  # fmt: skip
