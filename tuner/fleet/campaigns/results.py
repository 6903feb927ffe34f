"""Results: progress and gain of a campaign, its failures, and its problems one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import func, select
from sqlalchemy.orm import Session, joinedload

from tuner.evidence import codec
from tuner.evidence.campaign_models import CampaignProblemRow, CampaignRow, RoundRow, WorkerRow
from tuner.evidence.codec import utc
from tuner.evidence.models import ConfigRow, MeasurementRow
from tuner.evidence.records import Ratio
from tuner.evidence.store import Store
from tuner.fleet.campaigns.campaigns import campaign_of, row_of
from tuner.fleet.campaigns.clock import now
from tuner.fleet.campaigns.records import (
    Campaign,
    CampaignProblem,
    CampaignStatus,
    ProblemStatus,
    Progress,
    Summary,
    gain_of,
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
    """What a campaign has achieved so far.

    Raises:
        UnknownCampaign: no campaign has this id.
    """
    with store.transaction() as session:
        campaign = campaign_of(row_of(session, campaign_id))
        of_campaign = select(Item.versus_first).where(Item.campaign_id == campaign_id, Item.status == "done")
        ratios = [Ratio(**found) for found in session.scalars(of_campaign) if found]
        parked = select(Item.reason).where(Item.campaign_id == campaign_id, Item.status == "parked")
        reasons = Counter(reason.partition(":")[0] for reason in session.scalars(parked))
        stands = _progress(session, campaign)
        return Summary(stands, gain_of(ratios), stands.failed, dict(reasons.most_common()))


def problems(
    store: Store,
    campaign_id: int,
    after: int = 0,
    limit: int = 100,
    status: ProblemStatus | None = None,
    since: datetime | None = None,
) -> list[CampaignProblem]:
    """A campaign's problems with an id above `after`, in order.

    Args:
        since: only problems that ended then or later.

    Raises:
        UnknownCampaign: no campaign has this id.
    """
    query = select(Item).where(Item.campaign_id == campaign_id, Item.id > after).order_by(Item.id).limit(limit)
    if status is not None:
        query = query.where(Item.status == status.value)
    if since is not None:
        query = query.where(Item.ended_at >= since)
    with store.transaction() as session:
        row_of(session, campaign_id)
        rows = session.scalars(query.options(joinedload(Item.problem), joinedload(Item.device))).all()
        winners = _winners(session, [row.measurement_id for row in rows if row.measurement_id is not None])
        return [_problem(row, *winners.get(row.measurement_id or 0, ("", None))) for row in rows]


def _progress(session: Session, campaign: Campaign) -> Progress:
    of_campaign = select(Item).where(Item.campaign_id == campaign.id).subquery()
    totals = session.execute(
        select(of_campaign.c.status, func.count(), func.sum(of_campaign.c.tried), func.sum(of_campaign.c.gpu_seconds))
        .group_by(of_campaign.c.status)
    ).all()  # fmt: skip
    counts = dict.fromkeys((status.value for status in ProblemStatus), 0)
    counts |= {status: count for status, count, _, _ in totals}
    tried = sum(int(found) for _, _, found, _ in totals)
    left = counts["waiting"] + counts["open"]
    tried_of_left = sum(int(found) for status, _, found, _ in totals if status in ("waiting", "open"))
    still = max(left * campaign.budget.candidates - tried_of_left, 0)
    rate = _rate(session, campaign)
    running = campaign.status is CampaignStatus.RUNNING
    return Progress(
        campaign, counts, tried, tried + still, _failed(session, campaign.id),
        float(sum(seconds for _, _, _, seconds in totals)), _workers(session, campaign.id),
        _running(session, campaign.id), rate, still / rate if rate and running else None,
    )  # fmt: skip


def _failed(session: Session, campaign_id: int) -> dict[str, int]:
    failed: Counter[str] = Counter()
    for outcomes in session.scalars(select(Item.failed).where(Item.campaign_id == campaign_id, Item.tried > 0)):
        failed.update(outcomes)
    return dict(failed.most_common())


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


def _workers(session: Session, campaign_id: int) -> int:
    queues = select(Item.queue).where(Item.campaign_id == campaign_id).distinct()
    live = select(func.count()).select_from(WorkerRow).where(WorkerRow.status == "live", WorkerRow.queue.in_(queues))
    return session.scalar(live) or 0


def _running(session: Session, campaign_id: int) -> int:
    query = select(func.count()).select_from(RoundRow).join(Item, Item.id == RoundRow.campaign_problem_id)
    return session.scalar(query.where(Item.campaign_id == campaign_id, RoundRow.status == "running")) or 0


def _winners(session: Session, ids: Sequence[int]) -> dict[int, tuple[str, float | None]]:
    query = select(MeasurementRow.id, ConfigRow.key, MeasurementRow.median_us).join(ConfigRow)
    return {place: (key, us) for place, key, us in session.execute(query.where(MeasurementRow.id.in_(ids)))}


def _problem(row: CampaignProblemRow, config_key: str, median_us: float | None) -> CampaignProblem:
    return CampaignProblem(
        row.id, row.campaign_id, codec.problem_of(row.problem.key), row.device.name, row.device.kind,
        ProblemStatus(row.status), row.attempts, row.reason, row.failing_config, row.rounds, row.tried,
        dict(row.failed), row.gpu_seconds, row.measurement_id, config_key, median_us, codec.ratio(row.versus_first),
        codec.ratio(row.versus_best), utc(row.ended_at) if row.ended_at else None,
    )  # fmt: skip
