"""The queue's own tables, as Procrastinate ships them; on PostgreSQL alone."""

from __future__ import annotations

from alembic import op
from procrastinate.schema import SchemaManager

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_DROP = """
DO $$
DECLARE
    named record;
BEGIN
    DROP TABLE procrastinate_periodic_defers, procrastinate_events, procrastinate_jobs, procrastinate_workers CASCADE;
    FOR named IN
        SELECT oid::regprocedure AS signature FROM pg_proc
         WHERE proname LIKE 'procrastinate\\_%' AND pronamespace = current_schema()::regnamespace
    LOOP
        EXECUTE 'DROP FUNCTION ' || named.signature || ' CASCADE';
    END LOOP;
    DROP TYPE procrastinate_job_status, procrastinate_job_event_type, procrastinate_job_to_defer_v1;
END $$
"""


def upgrade() -> None:
    _run(SchemaManager.get_schema())


def downgrade() -> None:
    _run(_DROP)


def _run(script: str) -> None:
    bind = op.get_bind()
    if bind.dialect.name == "postgresql":
        # Without parameters, so that `%` means itself and one call takes the whole script.
        bind.exec_driver_sql(script, execution_options={"no_parameters": True})
