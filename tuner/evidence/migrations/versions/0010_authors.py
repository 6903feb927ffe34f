"""Authors: the token of a worker, the worker, round and token of a measurement, revocations, and the history of bests.

Numbers of workers, rounds and tokens in a measurement are no foreign keys: measurements outlive those rows.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from tuner.evidence.migrations.append_only import forbid_changes

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

COLUMNS = {
    "worker": [("token_id", sa.Integer())],
    "round": [("report_digest", sa.String(length=64))],
    "measurement": [("worker_id", sa.Integer()), ("round_id", sa.Integer()), ("token_id", sa.Integer())],
}
APPEND_ONLY = ("revocation", "revoked_measurement", "best_change")


def upgrade() -> None:
    for table, columns in COLUMNS.items():
        for name, kind in columns:
            op.add_column(table, sa.Column(name, kind, nullable=True))
    op.create_table(
        "revocation",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("worker", sa.String(length=100), nullable=False),
        sa.Column("token", sa.String(length=100), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("made_by", sa.String(length=100), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_revocation")),
    )
    op.create_table(
        "revoked_measurement",
        sa.Column("measurement_id", sa.Integer(), nullable=False),
        sa.Column("revocation_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["measurement_id"], ["measurement.id"], name=op.f("fk_revoked_measurement_measurement_id")
        ),
        sa.ForeignKeyConstraint(
            ["revocation_id"], ["revocation.id"], name=op.f("fk_revoked_measurement_revocation_id")
        ),
        sa.PrimaryKeyConstraint("measurement_id", name=op.f("pk_revoked_measurement")),
    )
    op.create_table(
        "best_change",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("problem_id", sa.Integer(), nullable=False),
        sa.Column("device_id", sa.Integer(), nullable=False),
        sa.Column("policy", sa.String(length=40), nullable=False),
        sa.Column("measurement_id", sa.Integer(), nullable=True),
        sa.Column("previous_id", sa.Integer(), nullable=True),
        sa.Column("previous_evidence", sa.JSON(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["problem_id"], ["problem.id"], name=op.f("fk_best_change_problem_id")),
        sa.ForeignKeyConstraint(["device_id"], ["device.id"], name=op.f("fk_best_change_device_id")),
        sa.ForeignKeyConstraint(["measurement_id"], ["measurement.id"], name=op.f("fk_best_change_measurement_id")),
        sa.ForeignKeyConstraint(["previous_id"], ["measurement.id"], name=op.f("fk_best_change_previous_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_best_change")),
    )
    op.create_index("ix_best_change_problem_id", "best_change", ["problem_id", "device_id", "policy"])
    gone = sa.text("measurement_id IS NULL")
    op.create_index("ix_best_change_gone", "best_change", ["version"], sqlite_where=gone, postgresql_where=gone)
    for table in APPEND_ONLY:
        forbid_changes(table)


def downgrade() -> None:
    for table in ("best_change", "revoked_measurement", "revocation"):
        op.drop_table(table)
    for table, columns in COLUMNS.items():
        for name, _ in columns:
            op.drop_column(table, name)
