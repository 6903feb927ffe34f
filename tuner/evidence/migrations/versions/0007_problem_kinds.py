"""The kind of every problem, and its fields as a question spells them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from tuner.evidence.codec import problem_of

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

problem = sa.table("problem", sa.column("id"), sa.column("key"), sa.column("kind"), sa.column("fields", sa.JSON))


def upgrade() -> None:
    # SQLite adds a NOT NULL column only with a default. It is right for old rows: before, every problem was a GEMM.
    op.add_column("problem", sa.Column("kind", sa.String(length=40), server_default="gemm", nullable=False))
    op.add_column("problem", sa.Column("fields", sa.JSON(), server_default="{}", nullable=False))
    connection = op.get_bind()
    rows = [(id_, problem_of(key)) for id_, key in connection.execute(sa.select(problem.c.id, problem.c.key))]
    if rows:
        change = sa.update(problem).where(problem.c.id == sa.bindparam("of"))
        change = change.values(kind=sa.bindparam("its_kind"), fields=sa.bindparam("its_fields", type_=sa.JSON))
        connection.execute(change, [{"of": id_, "its_kind": p.kind, "its_fields": p.fields()} for id_, p in rows])


def downgrade() -> None:
    op.drop_column("problem", "fields")
    op.drop_column("problem", "kind")
