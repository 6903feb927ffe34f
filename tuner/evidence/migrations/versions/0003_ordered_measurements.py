"""A counter that makes measurements visible in the order of their ids."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

counter = sa.table("counter", sa.column("name", sa.String), sa.column("value", sa.BigInteger))


def upgrade() -> None:
    measurement = sa.table("measurement", sa.column("id"))
    last = op.get_bind().scalar(sa.select(sa.func.max(measurement.c.id))) or 0
    op.bulk_insert(counter, [{"name": "measurement", "value": last}])


def downgrade() -> None:
    op.execute(sa.delete(counter).where(counter.c.name == "measurement"))
