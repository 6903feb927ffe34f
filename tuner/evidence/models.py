"""Tables, with constraints that hold whatever the code above does.

* One measurement per (study, config, stage, series, policy): nothing is stored twice.
* Measurements, provenance, revocations and changes of bests are append-only: triggers refuse every UPDATE and DELETE
  (see the migrations).
* A best references its measurement together with its outcome, which must be `correct`: nothing unverified is served.
* Of a problem's bests on a device, one per policy, one is served: the answer to a question that names no policy.
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
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    UniqueConstraint,
    text,
    true,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from tuner.evidence.columns import Line, Words

_NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_name)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    """All tables; constraint names are derived, so that migrations can name them on every database."""

    metadata = MetaData(naming_convention=_NAMES)


class Numbered:
    """A table whose rows have a number."""

    id: Mapped[int] = mapped_column(primary_key=True)


class ProblemRow(Numbered, Base):
    """A problem by its key, with its extents for nearest-neighbour queries and the fields of its kind for readers."""

    __tablename__ = "problem"

    key: Mapped[str] = mapped_column(Line(200), unique=True)
    m: Mapped[int] = mapped_column(Integer)
    n: Mapped[int] = mapped_column(Integer)
    k: Mapped[int] = mapped_column(Integer)
    kind: Mapped[str] = mapped_column(Line(40), server_default="gemm")
    fields: Mapped[dict[str, Any]] = mapped_column(JSON, server_default="{}")


class DeviceRow(Numbered, Base):
    """A GPU model, and whether a real GPU or a replay measures."""

    __tablename__ = "device"
    __table_args__ = (UniqueConstraint("name", "kind"),)

    name: Mapped[str] = mapped_column(Line(100))
    kind: Mapped[str] = mapped_column(Line(16))


class ConfigRow(Numbered, Base):
    """A config by its key."""

    __tablename__ = "config"

    key: Mapped[str] = mapped_column(Line(500), unique=True)
    family: Mapped[str] = mapped_column(Line(40), index=True)
    knobs: Mapped[dict[str, Any]] = mapped_column(JSON)


class ProvenanceRow(Numbered, Base):
    """What measurements depend on: kernels, driver, libraries, seed; identified by content."""

    __tablename__ = "provenance"

    digest: Mapped[str] = mapped_column(Line(64), unique=True)
    content: Mapped[dict[str, Any]] = mapped_column(JSON)


class StudyRow(Numbered, Base):
    """A tuning run of one problem on one device; `generation` counts fresh starts."""

    __tablename__ = "study"
    __table_args__ = (UniqueConstraint("problem_id", "device_id", "policy", "family", "source", "generation"),)

    problem_id: Mapped[int] = mapped_column(ForeignKey("problem.id"))
    device_id: Mapped[int] = mapped_column(ForeignKey("device.id"))
    policy: Mapped[str] = mapped_column(Line(40))
    family: Mapped[str] = mapped_column(Line(40))
    source: Mapped[str] = mapped_column(Line(64))
    generation: Mapped[int] = mapped_column(Integer)
    status: Mapped[str] = mapped_column(Line(16))
    stopped_because: Mapped[str] = mapped_column(Words)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))

    problem: Mapped[ProblemRow] = relationship(lazy="raise")
    device: Mapped[DeviceRow] = relationship(lazy="raise")


class MeasurementRow(Numbered, Base):
    """One measurement; append-only."""

    __tablename__ = "measurement"
    __table_args__ = (
        UniqueConstraint("study_id", "config_id", "stage", "series", "policy"),
        # The target of `best`'s composite key.
        UniqueConstraint("id", "outcome", name="uq_measurement_id_outcome"),
        CheckConstraint(
            "outcome <> 'correct' OR (median_us > 0 AND verification IS NOT NULL)", name="correct_is_verified"
        ),
        Index("ix_measurement_problem_outcome", "problem_id", "outcome"),
    )

    study_id: Mapped[int] = mapped_column(ForeignKey("study.id"), index=True)
    problem_id: Mapped[int] = mapped_column(ForeignKey("problem.id"))
    device_id: Mapped[int] = mapped_column(ForeignKey("device.id"))
    config_id: Mapped[int] = mapped_column(ForeignKey("config.id"))
    provenance_id: Mapped[int] = mapped_column(ForeignKey("provenance.id"))
    stage: Mapped[str] = mapped_column(Line(16))
    series: Mapped[int] = mapped_column(Integer)
    policy: Mapped[str] = mapped_column(Line(40))
    outcome: Mapped[str] = mapped_column(Line(24))
    median_us: Mapped[float | None] = mapped_column(Float)
    samples_us: Mapped[list[float]] = mapped_column(JSON)
    detail: Mapped[str] = mapped_column(Words)
    verification: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    clocks: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    build_digest: Mapped[str] = mapped_column(Line(64))
    note: Mapped[str] = mapped_column(Words)
    product_joules: Mapped[float | None] = mapped_column(Float)
    taken_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    # Who reported it; no foreign keys, because measurements outlive rows of workers and rounds.
    worker_id: Mapped[int | None] = mapped_column(Integer)
    round_id: Mapped[int | None] = mapped_column(Integer)
    token_id: Mapped[int | None] = mapped_column(Integer)

    problem: Mapped[ProblemRow] = relationship(lazy="raise")
    device: Mapped[DeviceRow] = relationship(lazy="raise")
    config: Mapped[ConfigRow] = relationship(lazy="raise")
    provenance: Mapped[ProvenanceRow] = relationship(lazy="raise")
    revoked: Mapped[RevokedRow | None] = relationship(lazy="raise", viewonly=True)


class BestRow(Numbered, Base):
    """The winner of a problem on a device under a policy; replaced when a study ends; always correct."""

    __tablename__ = "best"
    __table_args__ = (
        UniqueConstraint("problem_id", "device_id", "policy"),
        CheckConstraint("outcome = 'correct'", name="only_correct"),
        ForeignKeyConstraint(
            ["measurement_id", "outcome"], ["measurement.id", "measurement.outcome"], name="fk_best_measurement_outcome"
        ),
        # Readers fetch what changed since the version that they have.
        Index("ix_best_version", "version", unique=True),
        Index(
            "ix_best_served", "problem_id", "device_id", unique=True, sqlite_where=text("served"),
            postgresql_where=text("served"),
        ),
    )  # fmt: skip

    problem_id: Mapped[int] = mapped_column(ForeignKey("problem.id"))
    device_id: Mapped[int] = mapped_column(ForeignKey("device.id"))
    policy: Mapped[str] = mapped_column(Line(40))
    measurement_id: Mapped[int] = mapped_column(Integer)
    outcome: Mapped[str] = mapped_column(Line(24))
    versus_first: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    versus_best: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    runner_up: Mapped[str] = mapped_column(Line(500))
    tried: Mapped[int] = mapped_column(Integer)
    failed: Mapped[dict[str, int]] = mapped_column(JSON)
    version: Mapped[int] = mapped_column(Integer)
    served: Mapped[bool] = mapped_column(Boolean, server_default=true())

    problem: Mapped[ProblemRow] = relationship(lazy="raise")
    device: Mapped[DeviceRow] = relationship(lazy="raise")
    measurement: Mapped[MeasurementRow] = relationship(
        lazy="raise", primaryjoin="foreign(BestRow.measurement_id) == MeasurementRow.id", viewonly=True
    )


class BestChangeRow(Numbered, Base):
    """One change of a best; append-only. `previous_evidence` holds the columns of the best that it replaced."""

    __tablename__ = "best_change"
    __table_args__ = (
        Index("ix_best_change_problem_id", "problem_id", "device_id", "policy"),
        # Readers that follow changes fetch the bests that are gone.
        Index(
            "ix_best_change_gone", "version", sqlite_where=text("measurement_id IS NULL"),
            postgresql_where=text("measurement_id IS NULL"),
        ),
    )  # fmt: skip

    problem_id: Mapped[int] = mapped_column(ForeignKey("problem.id"))
    device_id: Mapped[int] = mapped_column(ForeignKey("device.id"))
    policy: Mapped[str] = mapped_column(Line(40))
    measurement_id: Mapped[int | None] = mapped_column(ForeignKey("measurement.id"))
    previous_id: Mapped[int | None] = mapped_column(ForeignKey("measurement.id"))
    previous_evidence: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    reason: Mapped[str] = mapped_column(Words)
    at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    version: Mapped[int] = mapped_column(Integer)

    problem: Mapped[ProblemRow] = relationship(lazy="raise")
    device: Mapped[DeviceRow] = relationship(lazy="raise")


class RevocationRow(Numbered, Base):
    """One decision to trust a worker or a token no longer; append-only. One of `worker` and `token` is empty."""

    __tablename__ = "revocation"

    worker: Mapped[str] = mapped_column(Line(100))
    token: Mapped[str] = mapped_column(Line(100))
    since: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    reason: Mapped[str] = mapped_column(Words)
    made_by: Mapped[str] = mapped_column(Line(100))
    at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class RevokedRow(Base):
    """A measurement that a revocation took out of the running; append-only."""

    __tablename__ = "revoked_measurement"

    measurement_id: Mapped[int] = mapped_column(ForeignKey("measurement.id"), primary_key=True, autoincrement=False)
    revocation_id: Mapped[int] = mapped_column(ForeignKey("revocation.id"))


class TokenRow(Numbered, Base):
    """An API token: its digest, never its secret. Revoked ones are kept, so a name means one token forever."""

    __tablename__ = "token"

    name: Mapped[str] = mapped_column(Line(100), unique=True)
    digest: Mapped[str] = mapped_column(Line(64), unique=True)
    scopes: Mapped[list[str]] = mapped_column(JSON)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    expires_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    revoked_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))


class CounterRow(Base):
    """Number of changes of one sort (`tuner.evidence.changes`)."""

    __tablename__ = "counter"

    name: Mapped[str] = mapped_column(Line(40), primary_key=True)
    value: Mapped[int] = mapped_column(BigInteger)
