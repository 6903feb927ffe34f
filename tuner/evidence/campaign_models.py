"""Tables of campaigns, rounds, workers and builds, with the guarantees that the queue's engine does not give.

* No problem twice at once: one open round per problem and queue, over all campaigns.
* No GPU twice at once: one running round per worker, and one live worker per slot.
* A round has one lease: a lost round stays lost, and its problem gets a new one.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    DateTime,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column, relationship

from tuner.evidence.columns import Line, Words
from tuner.evidence.models import Base, DeviceRow, Numbered, ProblemRow

_OPEN = text("status IN ('queued', 'running')")
_RUNNING = text("status = 'running'")
_PRESENT = text("status <> 'gone'")


class MissRow(Numbered, Base):
    """A question without a measured answer, and how often it was asked."""

    __tablename__ = "miss"
    __table_args__ = (UniqueConstraint("key", "device"), Index("ix_miss_device", "device", "count", "id"))

    key: Mapped[str] = mapped_column(Line(200))
    device: Mapped[str] = mapped_column(Line(100))
    count: Mapped[int] = mapped_column(BigInteger)
    first_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    last_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class WorkerRow(Numbered, Base):
    """A worker: one process on one device. No two live workers share a `slot`, the GPU's UUID.

    `engine_id` is its number in the queue, None once it is gone. On PostgreSQL the engine keeps the heartbeats, and
    `beat_at` is the last one of a worker that is gone. `token_id` is the token that registered it, None without tokens.
    """

    __tablename__ = "worker"
    __table_args__ = (
        Index("uq_worker_slot", "slot", unique=True, sqlite_where=_PRESENT, postgresql_where=_PRESENT),
        CheckConstraint("status IN ('live', 'draining', 'gone')", name="status"),
        Index("ix_worker_status_beat_at", "status", "beat_at"),
    )

    name: Mapped[str] = mapped_column(Line(100))
    slot: Mapped[str] = mapped_column(Line(200))
    queue: Mapped[str] = mapped_column(Line(128))
    device_id: Mapped[int] = mapped_column(ForeignKey("device.id"))
    facts: Mapped[dict[str, Any]] = mapped_column(JSON)
    status: Mapped[str] = mapped_column(Line(16))
    gone_because: Mapped[str] = mapped_column(Words)
    registered_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    beat_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    rounds: Mapped[int] = mapped_column(Integer)
    busy_seconds: Mapped[float] = mapped_column(Float)
    engine_id: Mapped[int | None] = mapped_column(BigInteger)
    token_id: Mapped[int | None] = mapped_column(Integer)

    device: Mapped[DeviceRow] = relationship(lazy="raise")


class CampaignRow(Numbered, Base):
    """Problems × devices with a budget."""

    __tablename__ = "campaign"
    __table_args__ = (
        CheckConstraint("status IN ('running', 'paused', 'cancelled', 'finished')", name="status"),
        Index("ix_campaign_status_priority", "status", "priority", "id"),
    )

    name: Mapped[str] = mapped_column(Line(200))
    status: Mapped[str] = mapped_column(Line(16))
    stopped_because: Mapped[str] = mapped_column(Words)
    priority: Mapped[int] = mapped_column(Integer)
    budget: Mapped[dict[str, Any]] = mapped_column(JSON)
    idempotency_key: Mapped[str | None] = mapped_column(Line(200), unique=True)
    request_digest: Mapped[str] = mapped_column(Line(64))
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    finished_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))


class CampaignProblemRow(Numbered, Base):
    """One problem of a campaign on one device: waiting, open (it has a running round), or ended.

    `attempts` counts consecutive failed rounds, and `suspects` are the candidates that such a round had announced.
    `closing` asks for the finals of what was tried so far, and no more screening.
    """

    __tablename__ = "campaign_problem"
    __table_args__ = (
        UniqueConstraint("campaign_id", "problem_id", "device_id"),
        CheckConstraint("status IN ('waiting', 'open', 'done', 'parked', 'skipped')", name="status"),
        Index("ix_campaign_problem_next", "campaign_id", "status", "queue", "started", "id"),
        # One problem in all campaigns.
        Index("ix_campaign_problem_problem_id", "problem_id", "queue"),
    )

    campaign_id: Mapped[int] = mapped_column(ForeignKey("campaign.id"))
    problem_id: Mapped[int] = mapped_column(ForeignKey("problem.id"))
    device_id: Mapped[int] = mapped_column(ForeignKey("device.id"))
    queue: Mapped[str] = mapped_column(Line(128))
    status: Mapped[str] = mapped_column(Line(16))
    started: Mapped[bool] = mapped_column(Boolean)
    closing: Mapped[bool] = mapped_column(Boolean)
    attempts: Mapped[int] = mapped_column(Integer)
    suspects: Mapped[list[str]] = mapped_column(JSON)
    reason: Mapped[str] = mapped_column(Words)
    failing_config: Mapped[str] = mapped_column(Line(500))
    rounds: Mapped[int] = mapped_column(Integer)
    tried: Mapped[int] = mapped_column(Integer)
    failed: Mapped[dict[str, int]] = mapped_column(JSON)
    gpu_seconds: Mapped[float] = mapped_column(Float)
    measurement_id: Mapped[int | None] = mapped_column(ForeignKey("measurement.id"))
    versus_first: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    versus_best: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    ended_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    # How often the problem runs in the program that the campaign tunes.
    count: Mapped[int] = mapped_column(BigInteger, server_default="1")

    campaign: Mapped[CampaignRow] = relationship(lazy="raise")
    problem: Mapped[ProblemRow] = relationship(lazy="raise")
    device: Mapped[DeviceRow] = relationship(lazy="raise")


class RoundRow(Numbered, Base):
    """One round: a worker's work on one problem under one lease. Older versions also kept rounds that were queued.

    `job_id` is the queue's job while the round is running; `announced` are the candidates about to be measured.
    """

    __tablename__ = "round"
    __table_args__ = (
        Index("uq_round_open_problem", "problem_id", "queue", unique=True, sqlite_where=_OPEN, postgresql_where=_OPEN),
        Index("uq_round_running_worker", "worker_id", unique=True, sqlite_where=_RUNNING, postgresql_where=_RUNNING),
        CheckConstraint("status IN ('queued', 'running', 'done', 'failed', 'lost', 'withdrawn')", name="status"),
        CheckConstraint(
            "status IN ('queued', 'withdrawn') OR (lease IS NOT NULL AND worker_id IS NOT NULL)", name="leased"
        ),
        Index("ix_round_queue", "queue", "status", "priority", "campaign_problem_id"),
        Index("ix_round_campaign_problem_id", "campaign_problem_id"),
        # Rates are computed from the rounds that ended last.
        Index("ix_round_ended_at", "ended_at"),
    )

    campaign_problem_id: Mapped[int] = mapped_column(ForeignKey("campaign_problem.id"))
    problem_id: Mapped[int] = mapped_column(ForeignKey("problem.id"))
    queue: Mapped[str] = mapped_column(Line(128))
    status: Mapped[str] = mapped_column(Line(16))
    priority: Mapped[int] = mapped_column(Integer)
    job_id: Mapped[int | None] = mapped_column(BigInteger, unique=True)
    lease: Mapped[str | None] = mapped_column(Line(32), unique=True)
    worker_id: Mapped[int | None] = mapped_column(ForeignKey("worker.id"))
    study_id: Mapped[int | None] = mapped_column(ForeignKey("study.id"))
    announced_stage: Mapped[str] = mapped_column(Line(16))
    announced: Mapped[list[str]] = mapped_column(JSON)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    claimed_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    ended_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    busy_seconds: Mapped[float] = mapped_column(Float)
    measured: Mapped[int] = mapped_column(Integer)
    reason: Mapped[str] = mapped_column(Words)
    report_digest: Mapped[str | None] = mapped_column(Line(64))

    campaign_problem: Mapped[CampaignProblemRow] = relationship(lazy="raise")
    problem: Mapped[ProblemRow] = relationship(lazy="raise")
    worker: Mapped[WorkerRow | None] = relationship(lazy="raise")


class DeletedRounds(Base):
    """What rounds that were deleted for their age had counted, by queue and status: counters never shrink."""

    __tablename__ = "deleted_rounds"

    queue: Mapped[str] = mapped_column(Line(128), primary_key=True)
    status: Mapped[str] = mapped_column(Line(16), primary_key=True)
    count: Mapped[int] = mapped_column(BigInteger)
    measured: Mapped[int] = mapped_column(BigInteger)
    busy_seconds: Mapped[float] = mapped_column(Float)


class BuildRow(Numbered, Base):
    """The result of compiling one source, under the digest of that source; never replaced."""

    __tablename__ = "build"

    digest: Mapped[str] = mapped_column(Line(64), unique=True)
    arch: Mapped[str] = mapped_column(Line(16), index=True)
    nvrtc: Mapped[str] = mapped_column(Line(16))
    problem_key: Mapped[str] = mapped_column(Line(200))
    config_key: Mapped[str] = mapped_column(Line(500))
    registers: Mapped[int] = mapped_column(Integer)
    warnings: Mapped[list[str]] = mapped_column(JSON)
    seconds: Mapped[float] = mapped_column(Float)
    cubin_sha256: Mapped[str] = mapped_column(Line(64))
    # Large and rarely needed: lists of builds do not load it.
    cubin: Mapped[bytes] = mapped_column(LargeBinary, deferred=True, deferred_raiseload=True)
    offered_by: Mapped[str] = mapped_column(Line(100))
    offered_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
