"""Triggers that refuse every UPDATE and DELETE of a table, and their removal while a migration changes the table."""

from __future__ import annotations

from alembic import op


def forbid_changes(table: str) -> None:
    """Makes a table append-only; PostgreSQL's trigger function comes from revision 0001."""
    if op.get_bind().dialect.name == "postgresql":
        # For each statement, so that TRUNCATE and a change of no rows are refused too.
        op.execute(
            f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
            f"FOR EACH STATEMENT EXECUTE FUNCTION gemmtune_append_only()"
        )
        return
    for action in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER {table}_no_{action.lower()} BEFORE {action} ON {table} "
            f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
        )


def allow_changes(table: str) -> None:
    """Removes the triggers."""
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f"DROP TRIGGER {table}_append_only ON {table}")
        return
    for action in ("update", "delete"):
        op.execute(f"DROP TRIGGER {table}_no_{action}")
