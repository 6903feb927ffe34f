"""The role of a service on PostgreSQL: it uses the tables, and can change neither them nor their triggers."""

from __future__ import annotations

from typing import Final

from psycopg import sql
from sqlalchemy import Connection, inspect

from tuner.errors import StoreError
from tuner.evidence.revisions import VERSION_TABLE

#: Tables whose rows nobody changes or deletes.
APPEND_ONLY: Final = ("measurement", "provenance", "revocation", "revoked_measurement", "best_change")
_GRANTS: Final = (
    "GRANT USAGE ON SCHEMA {schema} TO {role}",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}",
    "GRANT USAGE, SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA {schema} TO {role}",
    "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO {role}",
)


def grant(connection: Connection, role: str, password: str = "") -> None:
    """Lets a role do all that a service does; makes it if it is missing.

    Args:
        connection: of the tables' owner, in a transaction.
        password: the role's from now on, also of one that is there; without one a new role needs another way to log in.

    Raises:
        StoreError: not PostgreSQL, or the role is the tables' owner, who would lose the right to migrate them.
    """
    if connection.dialect.name != "postgresql":
        raise StoreError("a SQLite file has no roles: whoever writes it may change it; use file permissions")
    cursor = connection.connection.cursor()
    schema = sql.Identifier(str(inspect(connection).default_schema_name))
    named = sql.Identifier(role)
    cursor.execute("SELECT 1 WHERE current_user = %s", (role,))
    if cursor.fetchone() is not None:
        raise StoreError(f"{role} is the tables' owner, who migrates them: give services another role")
    cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (role,))
    if cursor.fetchone() is None:
        cursor.execute(sql.SQL("CREATE ROLE {} LOGIN").format(named))
    if password:
        cursor.execute(sql.SQL("ALTER ROLE {} PASSWORD {}").format(named, sql.Literal(password)))
    for statement in _GRANTS:
        cursor.execute(sql.SQL(statement).format(schema=schema, role=named))
    for table in APPEND_ONLY:
        cursor.execute(sql.SQL("REVOKE UPDATE, DELETE ON {} FROM {}").format(sql.Identifier(table), named))
    version = sql.Identifier(VERSION_TABLE)
    cursor.execute(sql.SQL("REVOKE INSERT, UPDATE, DELETE ON {} FROM {}").format(version, named))
