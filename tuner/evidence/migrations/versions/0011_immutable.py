"""Rows that are immutable stay so, by whatever statement they are attacked; bests point at their own measurements.

On SQLite `INSERT OR REPLACE` deletes a row without its DELETE trigger: an INSERT trigger refuses it. Job insertions
notify nobody any more: nothing listens, and a channel named after a long device name is an error.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

#: Columns that identify a row of a table, besides its id.
UNIQUE = {
    "measurement": ("study_id", "config_id", "stage", "series", "policy"),
    "provenance": ("digest",),
    "config": ("key",),
    "problem": ("key",),
    "device": ("name", "kind"),
    "revocation": (),
    "revoked_measurement": ("measurement_id",),
    "best_change": (),
}
#: Columns that never change, of tables that may otherwise be updated.
FIXED = {"config": ("key", "family", "knobs"), "problem": ("key", "m", "n", "k"), "device": ("name", "kind")}
NOTIFY = ("procrastinate_jobs_notify_queue_job_inserted_v1", "procrastinate_jobs_notify_queue_job_aborted_v1")
OWN = ("EXISTS (SELECT 1 FROM measurement WHERE id = NEW.measurement_id AND problem_id = NEW.problem_id "
       "AND device_id = NEW.device_id AND policy = NEW.policy)")
FOREIGN = "a best points at a measurement of another problem, device or policy"
UNVERIFIED = "a correct measurement has a verification of every element without mismatches"

counter = sa.table("counter", sa.column("name", sa.String), sa.column("value", sa.BigInteger))


def upgrade() -> None:
    # What the service writes to see that it can.
    op.bulk_insert(counter, [{"name": "probe", "value": 0}])
    if op.get_bind().dialect.name == "sqlite":
        _upgrade_sqlite()
    else:
        _upgrade_postgresql()


def downgrade() -> None:
    op.execute("DELETE FROM counter WHERE name = 'probe'")
    if op.get_bind().dialect.name == "sqlite":
        for name in [*(f"{table}_no_replace" for table in UNIQUE), *(f"{table}_fixed" for table in FIXED),
                     "best_own_insert", "best_own_update", "measurement_verified"]:
            op.execute(f"DROP TRIGGER {name}")
        return
    for table in FIXED:
        op.execute(f"DROP TRIGGER {table}_fixed ON {table}")
    op.execute("DROP TRIGGER best_own ON best")
    op.execute("DROP TRIGGER measurement_verified ON measurement")
    for function in ("fixed", "own", "verified"):
        op.execute(f"DROP FUNCTION gemmtune_{function}")
    for name in NOTIFY:
        op.execute(f"ALTER TABLE procrastinate_jobs ENABLE TRIGGER {name}")


def _upgrade_sqlite() -> None:
    for table, columns in UNIQUE.items():
        key = "measurement_id" if table == "revoked_measurement" else "id"
        same = f"{key} = NEW.{key}"
        if columns:
            same += " OR (" + " AND ".join(f"{column} = NEW.{column}" for column in columns) + ")"
        op.execute(
            f"CREATE TRIGGER {table}_no_replace BEFORE INSERT ON {table} "
            f"WHEN EXISTS (SELECT 1 FROM {table} WHERE {same}) "
            f"BEGIN SELECT RAISE(ABORT, 'UNIQUE constraint failed: rows of {table} are never replaced'); END"
        )
    for table, columns in FIXED.items():
        changed = " OR ".join(f"NEW.{column} IS NOT OLD.{column}" for column in ("id", *columns))
        op.execute(
            f"CREATE TRIGGER {table}_fixed BEFORE UPDATE ON {table} WHEN {changed} "
            f"BEGIN SELECT RAISE(ABORT, 'a {table} never changes'); END"
        )
    for action in ("INSERT", "UPDATE"):
        op.execute(
            f"CREATE TRIGGER best_own_{action.lower()} BEFORE {action} ON best WHEN NOT {OWN} "
            f"BEGIN SELECT RAISE(ABORT, '{FOREIGN}'); END"
        )
    op.execute(
        f"CREATE TRIGGER measurement_verified BEFORE INSERT ON measurement WHEN NEW.outcome = 'correct' AND ("
        f"coalesce(json_extract(NEW.verification, '$.elements'), 0) < 1 "
        f"OR coalesce(json_extract(NEW.verification, '$.mismatches'), 1) <> 0) "
        f"BEGIN SELECT RAISE(ABORT, '{UNVERIFIED}'); END"
    )


def _upgrade_postgresql() -> None:
    _function("fixed", "true", "a % never changes", "TG_TABLE_NAME")
    for table, columns in FIXED.items():
        # `json` has no equality.
        changed = " OR ".join(f"NEW.{c}::text IS DISTINCT FROM OLD.{c}::text" for c in ("id", *columns))
        op.execute(
            f"CREATE TRIGGER {table}_fixed BEFORE UPDATE ON {table} FOR EACH ROW WHEN ({changed}) "
            f"EXECUTE FUNCTION gemmtune_fixed()"
        )
    _function("own", f"NOT {OWN}", FOREIGN)
    op.execute("CREATE TRIGGER best_own BEFORE INSERT OR UPDATE ON best FOR EACH ROW EXECUTE FUNCTION gemmtune_own()")
    unverified = ("coalesce(CAST(NEW.verification->>'elements' AS numeric), 0) < 1 "
                  "OR coalesce(CAST(NEW.verification->>'mismatches' AS numeric), 1) <> 0")
    _function("verified", unverified, UNVERIFIED)
    op.execute(
        "CREATE TRIGGER measurement_verified BEFORE INSERT ON measurement FOR EACH ROW "
        "WHEN (NEW.outcome = 'correct') EXECUTE FUNCTION gemmtune_verified()"
    )
    for name in NOTIFY:
        op.execute(f"ALTER TABLE procrastinate_jobs DISABLE TRIGGER {name}")


def _function(name: str, wrong: str, message: str, *values: str) -> None:
    said = ", ".join([f"'{message}'", *values])
    op.get_bind().exec_driver_sql(
        f"CREATE FUNCTION gemmtune_{name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF {wrong} THEN "
        f"RAISE EXCEPTION {said} USING ERRCODE = 'integrity_constraint_violation'; END IF; RETURN NEW; END $$",
        execution_options={"no_parameters": True},
    )
