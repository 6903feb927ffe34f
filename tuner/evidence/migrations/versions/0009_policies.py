"""Policies: one measurement of a config per policy, energy beside time, and one best of several that is served.

Until now every time was taken in rounds at a shared clock, which was called `cold_graph`.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from tuner.evidence.migrations.append_only import allow_changes, forbid_changes

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

UNIQUE = "uq_measurement_study_id"
NARROW = ["study_id", "config_id", "stage", "series"]


def upgrade() -> None:
    with op.batch_alter_table("best") as best:
        best.add_column(sa.Column("served", sa.Boolean(), server_default=sa.true(), nullable=False))
    where = sa.text("served")
    op.create_index(
        "ix_best_served", "best", ["problem_id", "device_id"], unique=True, sqlite_where=where, postgresql_where=where
    )
    # What a campaign measures is its devices' business.
    op.drop_column("campaign", "policy")
    _rename_policy("cold_graph", "rounds", [*NARROW, "policy"], sa.Column("product_joules", sa.Float(), nullable=True))


def downgrade() -> None:
    # An older version knows one policy: what was measured under others can't stay.
    op.drop_index("ix_best_served", "best")
    op.execute("DELETE FROM best WHERE policy <> 'rounds'")
    with op.batch_alter_table("best") as best:
        best.drop_column("served")
    op.add_column("campaign", sa.Column("policy", sa.String(length=40), server_default="cold_graph", nullable=False))
    _rename_policy("rounds", "cold_graph", NARROW, None)


def _rename_policy(old: str, new: str, unique: list[str], added: sa.Column[float] | None) -> None:
    for table in ("study", "best"):
        op.execute(f"UPDATE {table} SET policy = '{new}' WHERE policy = '{old}'")
    allow_changes("measurement")
    with op.batch_alter_table("measurement", table_args=_checks()) as measurement:
        measurement.drop_constraint(UNIQUE, type_="unique")
        measurement.create_unique_constraint(UNIQUE, unique)
        if added is not None:
            measurement.add_column(added)
        else:
            measurement.drop_column("product_joules")
    op.execute(f"UPDATE measurement SET policy = '{new}' WHERE policy = '{old}'")
    if added is None:
        op.execute("DELETE FROM measurement WHERE policy <> 'cold_graph'")
    forbid_changes("measurement")


def _checks() -> tuple[sa.CheckConstraint, ...]:
    """What a copied table would lose: SQLAlchemy does not read check constraints."""
    return (
        sa.CheckConstraint(
            "outcome <> 'correct' OR (median_us > 0 AND verification IS NOT NULL)",
            name=op.f("ck_measurement_correct_is_verified"),
        ),
    )
