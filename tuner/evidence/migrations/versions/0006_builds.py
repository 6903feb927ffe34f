"""Builds that workers share: made once, on any machine, and run by all."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "build",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("arch", sa.String(length=16), nullable=False),
        sa.Column("nvrtc", sa.String(length=16), nullable=False),
        sa.Column("problem_key", sa.String(length=200), nullable=False),
        sa.Column("config_key", sa.String(length=500), nullable=False),
        sa.Column("registers", sa.Integer(), nullable=False),
        sa.Column("warnings", sa.JSON(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("cubin_sha256", sa.String(length=64), nullable=False),
        sa.Column("cubin", sa.LargeBinary(), nullable=False),
        sa.Column("offered_by", sa.String(length=100), nullable=False),
        sa.Column("offered_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_build")),
        sa.UniqueConstraint("digest", name=op.f("uq_build_digest")),
    )
    op.create_index("ix_build_arch", "build", ["arch"], unique=False)


def downgrade() -> None:
    op.drop_index("ix_build_arch", table_name="build")
    op.drop_table("build")
