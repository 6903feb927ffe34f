"""What rounds that were deleted for their age had counted: counters of metrics never shrink."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "deleted_rounds",
        sa.Column("queue", sa.String(length=128), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("measured", sa.BigInteger(), nullable=False),
        sa.Column("busy_seconds", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("queue", "status", name=op.f("pk_deleted_rounds")),
    )


def downgrade() -> None:
    op.drop_table("deleted_rounds")
