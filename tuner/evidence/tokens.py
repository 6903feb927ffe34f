"""API tokens for HTTP. A secret is shown once, at creation; only its digest is stored.

A secret has 256 random bits and cannot be guessed, so one SHA-256 suffices instead of a slow hash.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from tuner.errors import TokenError
from tuner.evidence import changes
from tuner.evidence.codec import utc
from tuner.evidence.models import TokenRow
from tuner.evidence.store import Store

PREFIX: Final = "gemmtune_"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_SECRET_BYTES: Final = 32


class Scope(StrEnum):
    """What a token may do."""

    #: Ask: best, explain, tables, measurements, campaigns, metrics.
    READ = "read"
    #: Create, pause, resume and cancel campaigns.
    SUBMIT = "submit"
    #: Register a worker, claim rounds and report results.
    WORK = "work"
    #: Everything, including draining and removing what belongs to others.
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Token:
    """A token as stored.

    Attributes:
        digest: SHA-256 of the secret, in hexadecimal.
        expires_at: None when it does not expire.
        revoked_at: None while it has not been revoked.
    """

    id: int
    name: str
    digest: str
    scopes: frozenset[Scope]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None

    @property
    def may_end(self) -> bool:
        """Whether `refusal` may ever refuse it."""
        return self.revoked_at is not None or self.expires_at is not None

    def refusal(self, now: datetime) -> str | None:
        """Why the token is no longer valid; None while it is."""
        if self.revoked_at is not None:
            return f"token {self.name!r} was revoked on {self.revoked_at:%Y-%m-%d %H:%M} UTC"
        if self.expires_at is not None and self.expires_at <= now:
            return f"token {self.name!r} expired on {self.expires_at:%Y-%m-%d %H:%M} UTC"
        return None


def digest_of(secret: str) -> str:
    """SHA-256 of a secret, in hexadecimal."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def make(store: Store, name: str, scopes: Collection[str], lifetime: timedelta | None = None) -> tuple[Token, str]:
    """Creates a token; returns it with its secret, which cannot be retrieved again.

    Raises:
        TokenError: the name is taken or malformed, a scope is unknown, or the lifetime is not positive.
    """
    if not _NAME.fullmatch(name):
        raise TokenError(f"token name {name!r} is invalid: use 1 to 100 letters, digits, . _ -, not . _ - first")
    known = {scope.value for scope in Scope}
    if not scopes or set(scopes) - known:
        wrong = ", ".join(sorted(set(scopes) - known)) or "no scope"
        raise TokenError(f"{wrong} was given: a token needs one or more of {', '.join(sorted(known))}")
    if lifetime is not None and lifetime <= timedelta(0):
        raise TokenError(f"a lifetime of {lifetime} has already ended: give one in the future, or none")
    secret, now = PREFIX + secrets.token_urlsafe(_SECRET_BYTES), datetime.now(UTC)
    with store.transaction(writes=True) as session:
        # First: another caller with the same name waits here.
        changes.count(session, "token")
        if _row(session, name) is not None:
            raise TokenError(f"token {name!r} exists already (revoked tokens keep their names): choose another name")
        row = TokenRow(
            name=name, digest=digest_of(secret), scopes=sorted(set(scopes)), created_at=now,
            expires_at=now + lifetime if lifetime else None, revoked_at=None,
        )  # fmt: skip
        session.add(row)
        session.flush()
        return _token(row), secret


def revoke(store: Store, name: str) -> Token:
    """Revokes a token; services refuse it within a second. Revoking again keeps the first time.

    Raises:
        TokenError: no token has this name.
    """
    with store.transaction(writes=True) as session:
        row = _row(session, name)
        if row is None:
            raise TokenError(f"there is no token {name!r}: `gemmtune token list` lists them")
        if row.revoked_at is None:
            row.revoked_at = datetime.now(UTC)
            changes.count(session, "token")
        session.flush()
        return _token(row)


def tokens(store: Store) -> list[Token]:
    """Every token, including revoked and expired ones, oldest first."""
    with store.transaction() as session:
        return [_token(row) for row in session.scalars(select(TokenRow).order_by(TokenRow.id))]


def _row(session: Session, name: str) -> TokenRow | None:
    return session.scalars(select(TokenRow).where(TokenRow.name == name)).one_or_none()


def _token(row: TokenRow) -> Token:
    # Scopes of later versions grant nothing here.
    scopes = frozenset(scope for scope in Scope if scope.value in row.scopes)
    return Token(
        row.id, row.name, row.digest, scopes, utc(row.created_at), row.expires_at and utc(row.expires_at),
        row.revoked_at and utc(row.revoked_at),
    )  # fmt: skip
