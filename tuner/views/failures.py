"""Failures: candidates that were not correct, grouped by what they said, with the command that repeats one."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, and_, func, select
from sqlalchemy.orm import Session

from space.config import Config
from tuner.errors import StoreError
from tuner.evidence import changes, codec
from tuner.evidence.campaign_models import CampaignProblemRow
from tuner.evidence.models import ConfigRow, DeviceRow, MeasurementRow, ProblemRow, StudyRow
from tuner.evidence.picks import LIBRARY
from tuner.evidence.store import Store
from tuner.hints import device_option, flags_of, tune_command
from tuner.views import versions
from workers.measurement import Outcome

#: Failures that are read, newest first, and groups that are listed.
MOST_READ: Final = 50_000
MOST_GROUPS: Final = 200
_MOST_MESSAGE: Final = 200
_MOST_SUSPECTS: Final = 200
_NUMBER: Final = re.compile(r"0x[0-9a-fA-F]+|\d[\d,.]*")
_Row = MeasurementRow
#: As much of a detail as `message_of` reads: whole ones, of 4,000 characters each, would take 200 MB.
_BEGINNING: Final = func.substr(func.ltrim(_Row.detail, " \t\r\n"), 1, _MOST_MESSAGE)


@dataclass(frozen=True, slots=True)
class FailureFilter:
    """Which failures; None for any."""

    device: str | None = None
    campaign: int | None = None
    problem: str | None = None
    family: str | None = None
    outcome: str | None = None


@dataclass(frozen=True, slots=True)
class Example:
    """One failure of a group; `command` measures its problem again, `explain` checks its config."""

    measurement_id: int
    problem: str
    device: str
    config: Config
    detail: str
    command: str
    explain: str


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failures of one outcome and family with the same message, numbers aside."""

    outcome: str
    family: str
    message: str
    count: int
    problems: int
    configs: int
    first_at: datetime
    last_at: datetime
    example: Example | None


@dataclass(frozen=True, slots=True)
class Suspect:
    """A config that made every round with it fail, and so parked a problem."""

    campaign_id: int
    problem: str
    device: str
    config: str
    reason: str


@dataclass(frozen=True, slots=True)
class Failures:
    """Failures among all measurements.

    Attributes:
        total: of failures; only the newest `read` of them are grouped.
        measured: measurements in all.
        wrong_results: of our own kernels, whatever `outcome` is wanted; also those that are not read.
        groups: most frequent first.
    """

    total: int
    read: int
    measured: int
    wrong_results: int
    groups: tuple[FailureGroup, ...]
    suspects: tuple[Suspect, ...]


@dataclass(slots=True)
class _Group:
    count: int = 0
    problems: set[int] = field(default_factory=set)
    configs: set[int] = field(default_factory=set)
    first: tuple[int, datetime] | None = None
    last: tuple[int, datetime] | None = None


def version(store: Store, wanted: FailureFilter) -> tuple[object, ...]:
    """A value that changes whenever `failures` does."""
    measured, listed = changes.version(store.changed(), "measurement"), versions.of_campaign(store, wanted.campaign)
    with store.transaction() as session:
        return measured, listed, _suspects(session, wanted)


def failures(store: Store, wanted: FailureFilter) -> Failures:
    """The failures that are wanted, in groups."""
    with store.transaction() as session:
        where = _conditions(wanted)
        failed = _Row.outcome != "correct"
        if wanted.outcome is not None:
            failed = and_(failed, _Row.outcome == wanted.outcome)
        counts = func.count(_Row.id), func.count(_Row.id).filter(failed)
        measured, total = session.execute(select(*counts).where(*where)).one()
        ours = select(func.count(_Row.id)).join(ConfigRow, ConfigRow.id == _Row.config_id)
        ours = ours.where(*where, _Row.outcome == Outcome.WRONG_RESULT.value, ConfigRow.family != LIBRARY)
        wrong = session.scalars(ours).one()
        query = (
            select(_Row.id, _Row.outcome, ConfigRow.family, _BEGINNING, _Row.problem_id, _Row.config_id, _Row.taken_at)
            .join(ConfigRow, ConfigRow.id == _Row.config_id)
            # An index is searched for the ids, not the whole table.
            .where(_Row.id.in_(select(_Row.id).where(*where, failed)))
        )  # fmt: skip
        rows = session.execute(query.order_by(_Row.id.desc()).limit(MOST_READ)).all()
        groups: dict[tuple[str, str, str], _Group] = {}
        for number, outcome, family, detail, problem, config, at in rows:
            group = groups.setdefault((outcome, family, message_of(detail)), _Group())
            group.count += 1
            group.problems.add(problem)
            group.configs.add(config)
            group.first, group.last = (number, at), group.last or (number, at)
        listed = sorted(groups.items(), key=lambda each: (-each[1].count, each[0]))[:MOST_GROUPS]
        found = tuple(_group(session, *key, group) for key, group in listed)
        return Failures(total, len(rows), measured, wrong, found, _suspects(session, wanted))


def message_of(detail: str) -> str:
    """A failure's message without its numbers, so that failures of one cause have one message."""
    line = next((line.strip() for line in detail.splitlines() if line.strip()), "")
    return _NUMBER.sub("#", line[:_MOST_MESSAGE])


def _conditions(wanted: FailureFilter) -> list[ColumnElement[bool]]:
    where: list[ColumnElement[bool]] = []
    if wanted.device is not None:
        of_device = select(StudyRow.id).join(StudyRow.device).where(DeviceRow.name == wanted.device)
        where.append(_Row.study_id.in_(of_device))
    if wanted.problem is not None:
        where.append(_Row.problem_id.in_(select(ProblemRow.id).where(ProblemRow.key == wanted.problem)))
    if wanted.family is not None:
        where.append(_Row.config_id.in_(select(ConfigRow.id).where(ConfigRow.family == wanted.family)))
    if wanted.campaign is not None:
        ours = CampaignProblemRow.campaign_id == wanted.campaign
        where.append(_Row.problem_id.in_(select(CampaignProblemRow.problem_id).where(ours)))
        where.append(_Row.device_id.in_(select(CampaignProblemRow.device_id).where(ours)))
    return where


def _group(session: Session, outcome: str, family: str, message: str, group: _Group) -> FailureGroup:
    assert group.first is not None
    assert group.last is not None
    return FailureGroup(
        outcome, family, message, group.count, len(group.problems), len(group.configs), codec.utc(group.first[1]),
        codec.utc(group.last[1]), _example(session, group.last[0]),
    )  # fmt: skip


def _example(session: Session, number: int) -> Example | None:
    query = select(ProblemRow.key, DeviceRow.name, ConfigRow.key, _Row.detail)
    query = query.join(_Row.problem).join(_Row.device).join(_Row.config)
    problem_key, device, config_key, detail = session.execute(query.where(_Row.id == number)).one()
    try:
        problem, config = codec.problem_of(problem_key), codec.config_of(config_key)
    except StoreError:
        return None
    asked = f"{problem.shape}{flags_of(problem)}{device_option(device)}"
    explain = f"gemmtune explain {asked} --family {config.family} --config {config.knobs_text}"
    return Example(number, problem_key, device, config, detail, tune_command(problem), explain)


def _suspects(session: Session, wanted: FailureFilter) -> tuple[Suspect, ...]:
    item = CampaignProblemRow
    query = select(item.campaign_id, ProblemRow.key, DeviceRow.name, item.failing_config, item.reason)
    query = query.join(item.problem).join(item.device).where(item.failing_config != "")
    for column, value in ((item.campaign_id, wanted.campaign), (DeviceRow.name, wanted.device),
                          (ProblemRow.key, wanted.problem)):  # fmt: skip
        if value is not None:
            query = query.where(column == value)
    if wanted.family is not None:
        query = query.where(item.failing_config.startswith(f"{wanted.family}:", autoescape=True))
    rows: list[Any] = list(session.execute(query.order_by(item.id.desc()).limit(_MOST_SUSPECTS)))
    return tuple(Suspect(*row) for row in rows)
