"""API tokens, and counters by which readers see what changed since they last looked."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "token",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_token")),
        sa.UniqueConstraint("name", name=op.f("uq_token_name")),
        sa.UniqueConstraint("digest", name=op.f("uq_token_digest")),
    )
    counter = op.create_table(
        "counter",
        sa.Column("name", sa.String(length=40), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_counter")),
    )
    best = sa.table("best", sa.column("id"), sa.column("version"))
    # Two bests may share a version so far; readers that follow a counter need each change to have its own.
    rows = sa.select(best.c.id, sa.func.row_number().over(order_by=(best.c.version, best.c.id)).label("place"))
    ranked = rows.subquery()
    place = sa.select(ranked.c.place).where(ranked.c.id == best.c.id).scalar_subquery()
    op.execute(sa.update(best).values(version=place))
    last = op.get_bind().scalar(sa.select(sa.func.max(best.c.version))) or 0
    op.bulk_insert(counter, [{"name": "best", "value": last}, {"name": "token", "value": 0}])
    op.create_index("ix_best_version", "best", ["version"], unique=True)


def downgrade() -> None:
    op.drop_index("ix_best_version", table_name="best")
    op.drop_table("counter")
    op.drop_table("token")
