"""`gemmtune token …`: API tokens of the service."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from tuner.cli.commands import group
from tuner.cli.options import Db, Json, existing_store, open_store
from tuner.cli.output import console, emit, notes, say, table
from tuner.evidence import tokens
from tuner.evidence.tokens import Scope, Token

app = group("API tokens: create, list and revoke.")

_Name = Annotated[str, typer.Argument(help="Name of the token, as in node-7 or ci.")]


@app.command()
def create(
    name: _Name,
    scope: Annotated[list[str], typer.Option("--scope", "-s", help=f"{', '.join(Scope)}; repeatable.")],
    days: Annotated[
        float | None, typer.Option(min=0, max=36_500, help="Days until it expires. \\[default: never]")
    ] = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Creates a token and prints its secret once; only a digest is stored."""
    lifetime = timedelta(days=days) if days is not None else None
    with open_store(db) as store:
        token, secret = tokens.make(store, name, scope, lifetime)
    if as_json:
        emit(_json(token) | {"secret": secret})
        return
    until = f"until {token.expires_at:%Y-%m-%d %H:%M} UTC" if token.expires_at else "until it is revoked"
    notes.print(f"token {token.name}: {', '.join(sorted(token.scopes))}, {until}. It is shown only once:")
    console.print(secret)


@app.command("list")
def list_tokens(db: Db = None, as_json: Json = False) -> None:
    """Lists all tokens without their secrets."""
    with existing_store(db) as store:
        found = tokens.tokens(store)
    if as_json:
        emit({"tokens": [_json(token) for token in found]})
        return
    now = datetime.now(UTC)
    rows = [(token.name, ", ".join(sorted(token.scopes)), _moment(token.created_at), _moment(token.expires_at),
             _state(token, now)) for token in found]  # fmt: skip
    table(("name", "scopes", "created (UTC)", "expires (UTC)", "state"), rows)


@app.command()
def revoke(name: _Name, db: Db = None, as_json: Json = False) -> None:
    """Revokes a token. Running services refuse it within a second."""
    with existing_store(db) as store:
        token = tokens.revoke(store, name)
    say(f"token {token.name} is revoked", _json(token), as_json)


def _moment(when: datetime | None) -> str:
    return f"{when:%Y-%m-%d %H:%M}" if when else "never"


def _state(token: Token, now: datetime) -> str:
    if token.revoked_at is not None:
        return f"revoked {_moment(token.revoked_at)}"
    return "expired" if token.refusal(now) else "good"


def _json(token: Token) -> dict[str, object]:
    """A token without its id and digest."""
    return {name: getattr(token, name) for name in ("name", "scopes", "created_at", "expires_at", "revoked_at")}
