"""What identifies a row never changes: of problems, studies, tokens, workers, rounds, bests and builds.

Revision 0011 did this for configs, devices, and the extents of problems. A lease, a revocation of a token, and a round
that has ended are final as well. Rows that measurements name are never deleted, even by a connection that does not
check foreign keys.
"""

from __future__ import annotations

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

#: Columns that never change, besides the id.
FIXED = {
    "problem": ("key", "m", "n", "k", "kind", "fields"),
    "study": ("problem_id", "device_id", "policy", "family", "source", "generation", "created_at"),
    "token": ("name", "digest", "scopes", "created_at", "expires_at"),
    "worker": ("name", "slot", "queue", "device_id", "facts", "registered_at", "token_id"),
    "campaign_problem": ("campaign_id", "problem_id", "device_id", "queue"),
    "round": ("campaign_problem_id", "problem_id", "queue", "created_at"),
    "best": ("problem_id", "device_id", "policy"),
    "build": ("digest", "arch", "nvrtc", "problem_key", "config_key", "registers", "warnings", "seconds",
              "cubin_sha256", "cubin", "offered_by", "offered_at"),
}  # fmt: skip
#: Columns that are set once.
ONCE = {"token": ("revoked_at",), "round": ("lease", "worker_id", "claimed_at", "report_digest")}
#: Final states: while the condition holds for the old row, these columns keep their values.
FINAL = {
    "worker": ("OLD.status = 'gone'", ("status", "gone_because")),
    "round": ("OLD.status IN ('done', 'failed', 'lost', 'withdrawn')",
              ("status", "study_id", "announced_stage", "announced", "busy_seconds", "measured", "reason")),
}  # fmt: skip
#: What revision 0011 fixed of a problem.
BEFORE = {"problem": ("key", "m", "n", "k")}
KEPT = ("config", "problem", "device", "study", "token")
#: On SQLite `INSERT OR REPLACE` deletes a row without its DELETE trigger: what no other row may share.
UNIQUE = {
    "study": ("problem_id", "device_id", "policy", "family", "source", "generation"),
    "token": ("name",),
    "worker": (),
    "campaign_problem": (),
    "round": ("lease",),
    "build": (),
}


def upgrade() -> None:
    sqlite = op.get_bind().dialect.name == "sqlite"
    _drop(BEFORE, sqlite)
    _fix(FIXED, sqlite)
    for table in KEPT:
        if sqlite:
            op.execute(f"CREATE TRIGGER {table}_kept BEFORE DELETE ON {table} BEGIN "
                       f"SELECT RAISE(ABORT, 'rows of {table} are never deleted'); END")  # fmt: skip
        else:
            op.execute(f"CREATE TRIGGER {table}_kept BEFORE DELETE OR TRUNCATE ON {table} "
                       "FOR EACH STATEMENT EXECUTE FUNCTION gemmtune_append_only()")  # fmt: skip
    for table, columns in UNIQUE.items() if sqlite else ():
        same = " AND ".join(f"{column} = NEW.{column}" for column in columns)
        op.execute(
            f"CREATE TRIGGER {table}_no_replace BEFORE INSERT ON {table} "
            f"WHEN EXISTS (SELECT 1 FROM {table} WHERE id = NEW.id{f' OR ({same})' if same else ''}) "
            f"BEGIN SELECT RAISE(ABORT, 'UNIQUE constraint failed: rows of {table} are never replaced'); END"
        )


def downgrade() -> None:
    sqlite = op.get_bind().dialect.name == "sqlite"
    for table in UNIQUE if sqlite else ():
        op.execute(f"DROP TRIGGER {table}_no_replace")
    for table in KEPT:
        op.execute(f"DROP TRIGGER {table}_kept" + ("" if sqlite else f" ON {table}"))
    _drop(FIXED, sqlite)
    _fix(BEFORE, sqlite)


def _drop(tables: dict[str, tuple[str, ...]], sqlite: bool) -> None:
    for table in tables:
        op.execute(f"DROP TRIGGER {table}_fixed" + ("" if sqlite else f" ON {table}"))


def _fix(tables: dict[str, tuple[str, ...]], sqlite: bool) -> None:
    for table, columns in tables.items():
        whole = tables is FIXED
        changed = [_changed(column, sqlite) for column in ("id", *columns)]
        changed += [
            f"OLD.{column} IS NOT NULL AND {_changed(column, sqlite)}" for column in ONCE.get(table, ()) if whole
        ]
        if whole and table in FINAL:
            state, kept = FINAL[table]
            changed.append(f"{state} AND ({' OR '.join(_changed(column, sqlite) for column in kept)})")
        start = f"CREATE TRIGGER {table}_fixed BEFORE UPDATE ON {table}"
        if sqlite:
            op.execute(f"{start} WHEN {' OR '.join(changed)} BEGIN SELECT RAISE(ABORT, 'a {table} never changes'); END")
        else:
            op.execute(f"{start} FOR EACH ROW WHEN ({' OR '.join(changed)}) EXECUTE FUNCTION gemmtune_fixed()")


def _changed(column: str, sqlite: bool) -> str:
    # PostgreSQL's `json` has no equality.
    return f"NEW.{column} IS NOT OLD.{column}" if sqlite else f"NEW.{column}::text IS DISTINCT FROM OLD.{column}::text"
