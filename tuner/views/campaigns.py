"""A campaign's problems as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select

from tuner.evidence import codec
from tuner.evidence.campaign_models import CampaignProblemRow, RoundRow
from tuner.evidence.models import ConfigRow, DeviceRow, MeasurementRow, ProblemRow, RevokedRow
from tuner.evidence.physics import in_range
from tuner.evidence.store import Store
from tuner.fleet.campaigns.campaigns import row_of
from tuner.views.columnar import coded
from tuner.views.problem_facts import problem_or_none

_Item = CampaignProblemRow


def problem_columns(store: Store, campaign_id: int) -> dict[str, Any]:
    """A campaign's problems, as `GET /v1/campaigns/{id}/problems:columns` describes them.

    Raises:
        UnknownCampaign: no campaign has this id.
    """
    query = (
        select(
            _Item.id, ProblemRow.key, DeviceRow.name, _Item.status, _Item.tried, _Item.failed, _Item.rounds,
            _Item.gpu_seconds, MeasurementRow.median_us, _Item.versus_first, _Item.versus_best, _Item.measurement_id,
            _Item.attempts, _Item.reason, _Item.failing_config, _Item.ended_at, RoundRow.id, ConfigRow.family,
            RevokedRow.measurement_id,
        )
        .join(_Item.problem).join(_Item.device)
        .outerjoin(MeasurementRow, MeasurementRow.id == _Item.measurement_id)
        .outerjoin(ConfigRow, ConfigRow.id == MeasurementRow.config_id)
        .outerjoin(RevokedRow, RevokedRow.measurement_id == _Item.measurement_id)
        .outerjoin(RoundRow, (RoundRow.campaign_problem_id == _Item.id) & (RoundRow.status == "running"))
        .where(_Item.campaign_id == campaign_id).order_by(_Item.id)
    )  # fmt: skip
    with store.transaction() as session:
        row_of(session, campaign_id)
        rows = session.execute(query).all()
    return {"campaign_id": campaign_id, "rows": len(rows), "columns": _columns(rows)}


def _columns(rows: Sequence[Any]) -> dict[str, Any]:
    by_column: list[Sequence[Any]] = list(zip(*rows, strict=True)) if rows else [()] * 19
    ids, keys, devices, status, tried, failed, rounds, seconds, medians, firsts, bests, winners = by_column[:12]
    attempts, reasons, failing, ended, running, families, revoked = by_column[12:]
    problems = [problem_or_none(key) for key in keys]
    extents = [problem.extents if problem else (None, None, None) for problem in problems]
    first, best = ([codec.ratio(content) for content in column] for column in (firsts, bests))
    return {
        "id": ids, "key": keys,
        **{name: [each[place] for each in extents] for place, name in enumerate("mnk")},
        "dtype": coded(problem.dtype if problem else None for problem in problems),
        "layout": coded(problem.fields().get("layout") if problem else None for problem in problems),
        "device": coded(devices), "status": coded(status), "tried": tried,
        "failed": [sum(counts.values()) for counts in failed], "rounds": rounds, "gpu_seconds": seconds,
        "median_us": [us if in_range(us) else None for us in medians],
        "first": [ratio.value if ratio else None for ratio in first],
        "first_low": [ratio.low if ratio else None for ratio in first],
        "first_high": [ratio.high if ratio else None for ratio in first],
        "best": [ratio.value if ratio else None for ratio in best],
        "measurement_id": winners, "attempts": attempts, "reason": coded(reasons), "failing_config": coded(failing),
        "ended_at": [codec.utc(at).timestamp() if at else None for at in ended], "round_id": running,
        "family": coded(families), "revoked": [each is not None for each in revoked],
    }  # fmt: skip
