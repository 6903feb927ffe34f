"""What SQLite holds for connections that do not check foreign keys, which is its default: tokens, and correct bests.

`INSERT OR REPLACE` of a row with the digest of another token would delete that one, so a revoked token would be valid
again. A best would be pointed at a measurement that is not correct. PostgreSQL refuses both by its constraints.
"""

from __future__ import annotations

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

BEST = "id = NEW.measurement_id AND problem_id = NEW.problem_id AND device_id = NEW.device_id AND policy = NEW.policy"
SAME_NAME = "name = NEW.name"


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        _make(f"{BEST} AND outcome = NEW.outcome", f"({SAME_NAME}) OR digest = NEW.digest")


def downgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        _make(BEST, f"({SAME_NAME})")


def _make(best: str, token: str) -> None:
    for action in ("INSERT", "UPDATE"):
        op.execute(f"DROP TRIGGER best_own_{action.lower()}")
        op.execute(
            f"CREATE TRIGGER best_own_{action.lower()} BEFORE {action} ON best "
            f"WHEN NOT EXISTS (SELECT 1 FROM measurement WHERE {best}) BEGIN SELECT RAISE(ABORT, "
            "'a best points at a measurement of another problem, device or policy, or at one that is not correct'); END"
        )
    op.execute("DROP TRIGGER token_no_replace")
    op.execute(
        f"CREATE TRIGGER token_no_replace BEFORE INSERT ON token "
        f"WHEN EXISTS (SELECT 1 FROM token WHERE id = NEW.id OR {token}) "
        f"BEGIN SELECT RAISE(ABORT, 'UNIQUE constraint failed: rows of token are never replaced'); END"
    )
