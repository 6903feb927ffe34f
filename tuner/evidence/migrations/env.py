"""Alembic's environment; run by `tuner.evidence.database`, on the connection that it hands over."""

from __future__ import annotations

from alembic import context

from tuner.evidence.revisions import VERSION_TABLE
from tuner.evidence.schema import METADATA

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=METADATA,
    version_table=VERSION_TABLE,
    render_as_batch=True,
    compare_type=True,
)
with context.begin_transaction():
    context.run_migrations()
