"""Campaigns, their problems, rounds and workers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "campaign",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("stopped_because", sa.Text(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("policy", sa.String(length=40), nullable=False),
        sa.Column("budget", sa.JSON(), nullable=False),
        sa.Column("idempotency_key", sa.String(length=200), nullable=True),
        sa.Column("request_digest", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("status IN ('running', 'paused', 'cancelled', 'finished')", name=op.f("ck_campaign_status")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_campaign")),
        sa.UniqueConstraint("idempotency_key", name=op.f("uq_campaign_idempotency_key")),
    )
    op.create_index("ix_campaign_status_priority", "campaign", ["status", "priority", "id"], unique=False)
    op.create_table(
        "worker",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("slot", sa.String(length=200), nullable=False),
        sa.Column("queue", sa.String(length=128), nullable=False),
        sa.Column("device_id", sa.Integer(), nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("gone_because", sa.Text(), nullable=False),
        sa.Column("registered_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("beat_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("rounds", sa.Integer(), nullable=False),
        sa.Column("busy_seconds", sa.Float(), nullable=False),
        sa.Column("engine_id", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("status IN ('live', 'draining', 'gone')", name=op.f("ck_worker_status")),
        sa.ForeignKeyConstraint(["device_id"], ["device.id"], name=op.f("fk_worker_device_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_worker")),
    )
    op.create_index("ix_worker_status_beat_at", "worker", ["status", "beat_at"], unique=False)
    op.create_index(
        "uq_worker_slot",
        "worker",
        ["slot"],
        unique=True,
        sqlite_where=sa.text("status <> 'gone'"),
        postgresql_where=sa.text("status <> 'gone'"),
    )
    op.create_table(
        "campaign_problem",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("campaign_id", sa.Integer(), nullable=False),
        sa.Column("problem_id", sa.Integer(), nullable=False),
        sa.Column("device_id", sa.Integer(), nullable=False),
        sa.Column("queue", sa.String(length=128), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("started", sa.Boolean(), nullable=False),
        sa.Column("closing", sa.Boolean(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("suspects", sa.JSON(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("failing_config", sa.String(length=500), nullable=False),
        sa.Column("rounds", sa.Integer(), nullable=False),
        sa.Column("tried", sa.Integer(), nullable=False),
        sa.Column("failed", sa.JSON(), nullable=False),
        sa.Column("gpu_seconds", sa.Float(), nullable=False),
        sa.Column("measurement_id", sa.Integer(), nullable=True),
        sa.Column("versus_first", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("versus_best", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "status IN ('waiting', 'open', 'done', 'parked', 'skipped')", name=op.f("ck_campaign_problem_status")
        ),
        sa.ForeignKeyConstraint(["campaign_id"], ["campaign.id"], name=op.f("fk_campaign_problem_campaign_id")),
        sa.ForeignKeyConstraint(["device_id"], ["device.id"], name=op.f("fk_campaign_problem_device_id")),
        sa.ForeignKeyConstraint(
            ["measurement_id"], ["measurement.id"], name=op.f("fk_campaign_problem_measurement_id")
        ),
        sa.ForeignKeyConstraint(["problem_id"], ["problem.id"], name=op.f("fk_campaign_problem_problem_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_campaign_problem")),
        sa.UniqueConstraint("campaign_id", "problem_id", "device_id", name=op.f("uq_campaign_problem_campaign_id")),
    )
    op.create_index(
        "ix_campaign_problem_next",
        "campaign_problem",
        ["campaign_id", "status", "queue", "started", "id"],
        unique=False,
    )
    op.create_index("ix_campaign_problem_problem_id", "campaign_problem", ["problem_id", "queue"], unique=False)
    op.create_table(
        "round",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("campaign_problem_id", sa.Integer(), nullable=False),
        sa.Column("problem_id", sa.Integer(), nullable=False),
        sa.Column("queue", sa.String(length=128), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=True),
        sa.Column("lease", sa.String(length=32), nullable=True),
        sa.Column("worker_id", sa.Integer(), nullable=True),
        sa.Column("study_id", sa.Integer(), nullable=True),
        sa.Column("announced_stage", sa.String(length=16), nullable=False),
        sa.Column("announced", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("claimed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("busy_seconds", sa.Float(), nullable=False),
        sa.Column("measured", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "status IN ('queued', 'running', 'done', 'failed', 'lost', 'withdrawn')", name=op.f("ck_round_status")
        ),
        sa.CheckConstraint(
            "status IN ('queued', 'withdrawn') OR (lease IS NOT NULL AND worker_id IS NOT NULL)",
            name=op.f("ck_round_leased"),
        ),
        sa.ForeignKeyConstraint(
            ["campaign_problem_id"], ["campaign_problem.id"], name=op.f("fk_round_campaign_problem_id")
        ),
        sa.ForeignKeyConstraint(["problem_id"], ["problem.id"], name=op.f("fk_round_problem_id")),
        sa.ForeignKeyConstraint(["study_id"], ["study.id"], name=op.f("fk_round_study_id")),
        sa.ForeignKeyConstraint(["worker_id"], ["worker.id"], name=op.f("fk_round_worker_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_round")),
        sa.UniqueConstraint("job_id", name=op.f("uq_round_job_id")),
        sa.UniqueConstraint("lease", name=op.f("uq_round_lease")),
    )
    op.create_index("ix_round_campaign_problem_id", "round", ["campaign_problem_id"], unique=False)
    op.create_index("ix_round_ended_at", "round", ["ended_at"], unique=False)
    op.create_index("ix_round_queue", "round", ["queue", "status", "priority", "campaign_problem_id"], unique=False)
    op.create_index(
        "uq_round_open_problem",
        "round",
        ["problem_id", "queue"],
        unique=True,
        sqlite_where=sa.text("status IN ('queued', 'running')"),
        postgresql_where=sa.text("status IN ('queued', 'running')"),
    )
    op.create_index(
        "uq_round_running_worker",
        "round",
        ["worker_id"],
        unique=True,
        sqlite_where=sa.text("status = 'running'"),
        postgresql_where=sa.text("status = 'running'"),
    )


def downgrade() -> None:
    op.drop_index(
        "uq_round_running_worker",
        table_name="round",
        sqlite_where=sa.text("status = 'running'"),
        postgresql_where=sa.text("status = 'running'"),
    )
    op.drop_index(
        "uq_round_open_problem",
        table_name="round",
        sqlite_where=sa.text("status IN ('queued', 'running')"),
        postgresql_where=sa.text("status IN ('queued', 'running')"),
    )
    op.drop_index("ix_round_ended_at", table_name="round")
    op.drop_index("ix_round_queue", table_name="round")
    op.drop_index("ix_round_campaign_problem_id", table_name="round")
    op.drop_table("round")
    op.drop_index("ix_campaign_problem_problem_id", table_name="campaign_problem")
    op.drop_index("ix_campaign_problem_next", table_name="campaign_problem")
    op.drop_table("campaign_problem")
    op.drop_index(
        "uq_worker_slot",
        table_name="worker",
        sqlite_where=sa.text("status <> 'gone'"),
        postgresql_where=sa.text("status <> 'gone'"),
    )
    op.drop_index("ix_worker_status_beat_at", table_name="worker")
    op.drop_table("worker")
    op.drop_index("ix_campaign_status_priority", table_name="campaign")
    op.drop_table("campaign")
