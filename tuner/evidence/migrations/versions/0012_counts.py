"""How often a problem runs in the program that a campaign tunes, and questions that had no measured answer."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("campaign_problem", sa.Column("count", sa.BigInteger(), nullable=False, server_default="1"))
    op.create_table(
        "miss",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("device", sa.String(length=100), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("first_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_miss")),
        sa.UniqueConstraint("key", "device", name=op.f("uq_miss_key")),
    )
    op.create_index("ix_miss_device", "miss", ["device", "count", "id"])


def downgrade() -> None:
    op.drop_table("miss")
    op.drop_column("campaign_problem", "count")
