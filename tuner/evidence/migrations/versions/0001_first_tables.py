"""First tables, and the triggers that keep measurements append-only."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from tuner.evidence.migrations.append_only import forbid_changes

APPEND_ONLY = ("measurement", "provenance")

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "config",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(length=500), nullable=False),
        sa.Column("family", sa.String(length=40), nullable=False),
        sa.Column("knobs", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_config")),
        sa.UniqueConstraint("key", name=op.f("uq_config_key")),
    )
    op.create_index("ix_config_family", "config", ["family"], unique=False)

    op.create_table(
        "device",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_device")),
        sa.UniqueConstraint("name", "kind", name=op.f("uq_device_name")),
    )
    op.create_table(
        "problem",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("m", sa.Integer(), nullable=False),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("k", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_problem")),
        sa.UniqueConstraint("key", name=op.f("uq_problem_key")),
    )
    op.create_table(
        "provenance",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("content", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_provenance")),
        sa.UniqueConstraint("digest", name=op.f("uq_provenance_digest")),
    )
    op.create_table(
        "study",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("problem_id", sa.Integer(), nullable=False),
        sa.Column("device_id", sa.Integer(), nullable=False),
        sa.Column("policy", sa.String(length=40), nullable=False),
        sa.Column("family", sa.String(length=40), nullable=False),
        sa.Column("source", sa.String(length=64), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("stopped_because", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["device_id"], ["device.id"], name=op.f("fk_study_device_id")),
        sa.ForeignKeyConstraint(["problem_id"], ["problem.id"], name=op.f("fk_study_problem_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_study")),
        sa.UniqueConstraint(
            "problem_id", "device_id", "policy", "family", "source", "generation", name=op.f("uq_study_problem_id")
        ),
    )
    op.create_table(
        "measurement",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("study_id", sa.Integer(), nullable=False),
        sa.Column("problem_id", sa.Integer(), nullable=False),
        sa.Column("device_id", sa.Integer(), nullable=False),
        sa.Column("config_id", sa.Integer(), nullable=False),
        sa.Column("provenance_id", sa.Integer(), nullable=False),
        sa.Column("stage", sa.String(length=16), nullable=False),
        sa.Column("series", sa.Integer(), nullable=False),
        sa.Column("policy", sa.String(length=40), nullable=False),
        sa.Column("outcome", sa.String(length=24), nullable=False),
        sa.Column("median_us", sa.Float(), nullable=True),
        sa.Column("samples_us", sa.JSON(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("verification", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("clocks", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("build_digest", sa.String(length=64), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("taken_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "outcome <> 'correct' OR (median_us > 0 AND verification IS NOT NULL)",
            name=op.f("ck_measurement_correct_is_verified"),
        ),
        sa.ForeignKeyConstraint(["config_id"], ["config.id"], name=op.f("fk_measurement_config_id")),
        sa.ForeignKeyConstraint(["device_id"], ["device.id"], name=op.f("fk_measurement_device_id")),
        sa.ForeignKeyConstraint(["problem_id"], ["problem.id"], name=op.f("fk_measurement_problem_id")),
        sa.ForeignKeyConstraint(["provenance_id"], ["provenance.id"], name=op.f("fk_measurement_provenance_id")),
        sa.ForeignKeyConstraint(["study_id"], ["study.id"], name=op.f("fk_measurement_study_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_measurement")),
        sa.UniqueConstraint("id", "outcome", name="uq_measurement_id_outcome"),
        sa.UniqueConstraint("study_id", "config_id", "stage", "series", name=op.f("uq_measurement_study_id")),
    )
    op.create_index("ix_measurement_problem_outcome", "measurement", ["problem_id", "outcome"], unique=False)
    op.create_index("ix_measurement_study_id", "measurement", ["study_id"], unique=False)

    op.create_table(
        "best",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("problem_id", sa.Integer(), nullable=False),
        sa.Column("device_id", sa.Integer(), nullable=False),
        sa.Column("policy", sa.String(length=40), nullable=False),
        sa.Column("measurement_id", sa.Integer(), nullable=False),
        sa.Column("outcome", sa.String(length=24), nullable=False),
        sa.Column("versus_first", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("versus_best", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("runner_up", sa.String(length=500), nullable=False),
        sa.Column("tried", sa.Integer(), nullable=False),
        sa.Column("failed", sa.JSON(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.CheckConstraint("outcome = 'correct'", name=op.f("ck_best_only_correct")),
        sa.ForeignKeyConstraint(["device_id"], ["device.id"], name=op.f("fk_best_device_id")),
        sa.ForeignKeyConstraint(
            ["measurement_id", "outcome"], ["measurement.id", "measurement.outcome"], name="fk_best_measurement_outcome"
        ),
        sa.ForeignKeyConstraint(["problem_id"], ["problem.id"], name=op.f("fk_best_problem_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_best")),
        sa.UniqueConstraint("problem_id", "device_id", "policy", name=op.f("uq_best_problem_id")),
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            "CREATE OR REPLACE FUNCTION gemmtune_append_only() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME "
            "USING ERRCODE = 'integrity_constraint_violation'; END $$"
        )
    for table in APPEND_ONLY:
        forbid_changes(table)


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        for table in APPEND_ONLY:
            op.execute(f"DROP TRIGGER {table}_append_only ON {table}")
        op.execute("DROP FUNCTION gemmtune_append_only")
    op.drop_table("best")
    op.drop_index("ix_measurement_study_id", table_name="measurement")
    op.drop_index("ix_measurement_problem_outcome", table_name="measurement")

    op.drop_table("measurement")
    op.drop_table("study")
    op.drop_table("provenance")
    op.drop_table("problem")
    op.drop_table("device")
    op.drop_index("ix_config_family", table_name="config")

    op.drop_table("config")
