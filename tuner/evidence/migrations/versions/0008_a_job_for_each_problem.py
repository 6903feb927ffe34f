"""A queued round becomes a waiting problem: the queue has one job per problem, and a round begins when it is claimed."""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "UPDATE campaign_problem SET status = 'waiting' WHERE status = 'open' AND id NOT IN "
        "(SELECT campaign_problem_id FROM round WHERE status = 'running')"
    )
    op.execute("UPDATE round SET status = 'withdrawn', reason = 'upgraded', job_id = NULL WHERE status = 'queued'")
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DELETE FROM procrastinate_jobs WHERE status = 'todo'")


def downgrade() -> None:
    """An older version queues rounds of waiting problems by itself; it withdraws the jobs, which it does not know."""
