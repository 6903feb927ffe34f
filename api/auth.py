"""Who is calling: the token of a request, and what endpoints require of it.

An endpoint says `caller: Annotated[Caller, Depends(require("work"))]`, or a router `dependencies=[...]`. The
gate has resolved the token before; a dependency only reads what it found, so that it costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from fastapi import Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from api.problems import HttpProblem
from tuner.evidence.store import Store
from tuner.evidence.tokens import Scope, Token, digest_of, tokens

ScopeWord = Literal["read", "submit", "work", "admin"]

_BEARER: Final = HTTPBearer(auto_error=False, description="a token of `gemmtune token create`")
#: No secret that we make is longer; what is longer isn't hashed.
_MOST_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks.

    Attributes:
        name: of the token; `local` where no tokens are asked for.
        token_id: None where no tokens are asked for.
    """

    name: str
    token_id: int | None
    scopes: frozenset[Scope]

    def may(self, scope: Scope) -> bool:
        """Whether the caller carries a scope; `admin` carries all."""
        return scope in self.scopes or Scope.ADMIN in self.scopes


LOCAL: Final = Caller("local", None, frozenset(Scope))


class Keyring:
    """The tokens of a store, in memory. The follower reloads it whenever they change."""

    def __init__(self, required: bool) -> None:
        self.required = required
        self._by_digest: dict[str, Token] = {}
        self._callers: dict[int, Caller] = {}

    def load(self, store: Store) -> None:
        """Takes the tokens that the store has now."""
        found = tokens(store)
        self._callers = {token.id: Caller(token.name, token.id, token.scopes) for token in found}
        self._by_digest = {token.digest: token for token in found}

    def caller(self, authorization: bytes | None) -> Caller | HttpProblem:
        """Who sends this Authorization header, or the refusal that it earns.

        A refusal is returned, not raised: paths that are open to all don't mind it.
        """
        if not self.required:
            return LOCAL
        if authorization is None:
            return _unauthorized("no token was sent: add the header 'Authorization: Bearer …'", "")
        scheme, _, secret = authorization.decode("latin-1").partition(" ")
        if scheme.lower() != "bearer" or not 0 < len(secret) <= _MOST_CHARACTERS:
            return _unauthorized("the Authorization header is not 'Bearer' and a token", "invalid_request")
        # A look-up by digest: how long it takes tells nothing about any secret.
        token = self._by_digest.get(digest_of(secret))
        if token is None:
            return _unauthorized("the token is unknown: make one with `gemmtune token create`", "invalid_token")
        if refusal := token.refusal(datetime.now(UTC)):
            return _unauthorized(f"{refusal}: make another with `gemmtune token create`", "invalid_token")
        return self._callers[token.id]


def require(scope: ScopeWord) -> Callable[..., Coroutine[Any, Any, Caller]]:
    """A dependency that gives the caller, and refuses one without `scope`: 401 without a token, 403 without the scope.

    Where the service asks for no tokens, everybody on this machine has every scope.
    """
    needed = Scope(scope)

    async def caller(
        request: Request, _: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)] = None
    ) -> Caller:
        found: Caller | HttpProblem = request.state.caller
        if isinstance(found, HttpProblem):
            raise found
        if not found.may(needed):
            held = ", ".join(sorted(found.scopes)) or "none"
            raise HttpProblem(
                403,
                "scope-needed",
                f"token {found.name!r} has the scopes {held}; this needs {needed}: use a token that has it",
                {"WWW-Authenticate": f'Bearer realm="gemmtune", error="insufficient_scope", scope="{needed}"'},
            )
        return found

    return caller


def _unauthorized(detail: str, error: str) -> HttpProblem:
    challenge = 'Bearer realm="gemmtune"' + (f', error="{error}"' if error else "")
    return HttpProblem(401, "token-needed", detail, {"WWW-Authenticate": challenge})
