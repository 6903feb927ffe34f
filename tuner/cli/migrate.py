"""`gemmtune migrate`: upgrades a store's schema, as a role that the service does not need."""

from __future__ import annotations

from typing import Annotated

import psycopg
import typer

from tuner.cli.options import Json, OwnerDb, owner_url
from tuner.cli.output import say
from tuner.evidence.database import FAILURES, migrating, open_engine, unusable
from tuner.evidence.revisions import newest_revision
from tuner.evidence.roles import grant
from tuner.settings import settings


def migrate(
    role: Annotated[
        str | None,
        typer.Option("--for", metavar="ROLE", help="Role for services to log in with. Created if it is missing, given "
                     "the password in GEMMTUNE_SERVICE_PASSWORD, and granted the rights that services need."),
    ] = None,
    db: OwnerDb = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Brings the store's schema to this version's, with the role in GEMMTUNE_MIGRATION_DB.

    Services then need no right to change the schema, and can't drop the triggers that keep measurements append-only.
    """
    url = owner_url(db)
    # A mistyped path is no store to upgrade.
    engine = open_engine(url, create=False)
    try:
        if role:
            # In turn too: of two that make a role or grant a right at once, PostgreSQL refuses one.
            with migrating(engine) as connection:
                grant(connection, role, settings().service_password.get_secret_value())
    except (*FAILURES, psycopg.Error) as error:
        raise unusable(url, error) from error
    finally:
        engine.dispose()
    revision = newest_revision()
    granted = f"; {role} may use it" if role else ""
    say(f"the schema is {revision}, this version's{granted}", {"revision": revision, "role": role}, as_json)
