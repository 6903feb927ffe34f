"""Table of shared builds."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import JSON, DateTime, Float, Integer, LargeBinary, String
from sqlalchemy.orm import Mapped, mapped_column

from tuner.evidence.models import Base


class BuildRow(Base):
    """The result of compiling one source, under the digest of that source; never replaced."""

    __tablename__ = "build"

    id: Mapped[int] = mapped_column(primary_key=True)
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    arch: Mapped[str] = mapped_column(String(16), index=True)
    nvrtc: Mapped[str] = mapped_column(String(16))
    problem_key: Mapped[str] = mapped_column(String(200))
    config_key: Mapped[str] = mapped_column(String(500))
    registers: Mapped[int] = mapped_column(Integer)
    warnings: Mapped[list[str]] = mapped_column(JSON)
    seconds: Mapped[float] = mapped_column(Float)
    cubin_sha256: Mapped[str] = mapped_column(String(64))
    # Large and rarely needed: lists of builds do not load it.
    cubin: Mapped[bytes] = mapped_column(LargeBinary, deferred=True, deferred_raiseload=True)
    offered_by: Mapped[str] = mapped_column(String(100))
    offered_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
