"""Revisions of the store's schema, by the names of the migrations: a store opens sooner without importing Alembic."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

VERSION_TABLE: Final = "gemmtune_alembic_version"
MIGRATIONS: Final = Path(__file__).parent / "migrations"


@cache
def known_revisions() -> tuple[str, ...]:
    """All that this version knows, oldest first."""
    return tuple(sorted(path.name.partition("_")[0] for path in (MIGRATIONS / "versions").glob("[0-9]*.py")))


def newest_revision() -> str:
    """The revision of this version's tables."""
    return known_revisions()[-1]
