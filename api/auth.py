"""Authentication: the caller that a request's token belongs to, and the scope that an endpoint requires.

An endpoint declares `caller: Annotated[Caller, Depends(require("work"))]`, or a router `dependencies=[...]`. The
middleware has already resolved the token; the dependency only reads the result, so that it costs almost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from fastapi import Depends, Request, Security
from fastapi.dependencies.models import Dependant
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from api.http_errors import HttpError
from api.limits import check_no_query
from tuner.evidence.store import Store
from tuner.evidence.tokens import Scope, Token, digest_of, tokens

ScopeWord = Literal["read", "submit", "work", "admin"]

_BEARER: Final = HTTPBearer(auto_error=False, description="a token made by `gemmtune token create`")
#: Our secrets are shorter; anything longer is refused before it is hashed.
_MOST_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends a request.

    Attributes:
        name: name of the token; `local` if the service requires no tokens.
        token_id: None if the service requires no tokens.
    """

    name: str
    token_id: int | None
    scopes: frozenset[Scope]

    def may(self, scope: Scope) -> bool:
        """True if the caller's token carries `scope`; `admin` includes every scope."""
        return scope in self.scopes or Scope.ADMIN in self.scopes


LOCAL: Final = Caller("local", None, frozenset(Scope))


class TokenCache:
    """A store's tokens in memory. The snapshot follower reloads them whenever they change."""

    def __init__(self, required: bool) -> None:
        self.required = required
        self._known: dict[str, tuple[Token, Caller]] = {}

    def load(self, store: Store) -> None:
        """Reads the store's current tokens."""
        self._known = {token.digest: (token, Caller(token.name, token.id, token.scopes)) for token in tokens(store)}

    def caller(self, authorization: bytes | None) -> Caller | HttpError:
        """The caller that an Authorization header identifies, or the refusal.

        A refusal is returned, not raised: endpoints that are open to everyone ignore it.
        """
        if not self.required:
            return LOCAL
        if authorization is None:
            return _unauthorized(
                "no token was sent: add the header 'Authorization: Bearer …'; commands and workers take it from "
                "GEMMTUNE_TOKEN_FILE or GEMMTUNE_TOKEN, Client(url, token=…) sends it", ""
            )  # fmt: skip
        scheme, _, secret = authorization.decode("latin-1").partition(" ")
        if scheme.lower() != "bearer" or not 0 < len(secret) <= _MOST_CHARACTERS:
            return _unauthorized("the Authorization header is not 'Bearer' followed by a token", "invalid_request")
        # Looked up by digest: the time this takes reveals nothing about any secret.
        known = self._known.get(digest_of(secret))
        if known is None:
            return _unauthorized("the token is unknown: make one with `gemmtune token create`", "invalid_token")
        token, caller = known
        if token.may_end and (refusal := token.refusal(datetime.now(UTC))):
            return _unauthorized(f"{refusal}: make another with `gemmtune token create`", "invalid_token")
        return caller


async def any_caller(
    request: Request, _: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)] = None
) -> Caller:
    """A dependency that returns the caller, whatever its scopes, or refuses: 401 without a valid token.

    It also refuses a query on a path that takes none (422): schemas refuse unknown parameters elsewhere.
    """
    found: Caller | HttpError = request.state.caller
    if isinstance(found, HttpError):
        raise found
    scope = request.scope
    if scope["query_string"] and scope["path"].startswith("/v1/") and not _takes_query(scope["route"].dependant):
        check_no_query(request.url.query)
    return found


def _takes_query(dependant: Dependant) -> bool:
    return bool(dependant.query_params) or any(map(_takes_query, dependant.dependencies))


def require(scope: ScopeWord) -> Callable[..., Coroutine[Any, Any, Caller]]:
    """A dependency that returns the caller, or refuses: 401 without a valid token, 403 without `scope`.

    If the service requires no tokens, every caller has every scope.
    """
    needed = Scope(scope)

    async def caller(found: Annotated[Caller, Depends(any_caller)]) -> Caller:
        if not found.may(needed):
            held = ", ".join(sorted(found.scopes)) or "none"
            detail = f"token {found.name!r} has the scopes {held}; this needs {needed}: use a token that has it"
            challenge = f'Bearer realm="gemmtune", error="insufficient_scope", scope="{needed}"'
            raise HttpError(403, "scope-needed", detail, {"WWW-Authenticate": challenge})
        return found

    return caller


def _unauthorized(detail: str, error: str) -> HttpError:
    challenge = 'Bearer realm="gemmtune"' + (f', error="{error}"' if error else "")
    return HttpError(401, "token-needed", detail, {"WWW-Authenticate": challenge})
