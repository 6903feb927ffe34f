"""The gate: what every request passes before and after any endpoint.

It gives the request an id, finds out who asks, refuses what is misdirected, too long or too often, keeps
browsers strict, turns what nobody expected into a problem document, and logs and times all of it. It is plain
ASGI: a wrapper of Starlette's higher kind costs more than most of our endpoints.
"""

from __future__ import annotations

import logging
import secrets
import string
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import limits
from api.access import Access
from api.auth import Caller, Keyring
from api.limits import Rates
from api.meters import Meters
from api.problems import HttpProblem, document

#: An endpoint that may answer before the framework is asked: it sends and returns True, or returns False.
Shortcut = Callable[[Scope, Send], Awaitable[bool]]

_ID_CHARACTERS: Final = frozenset(string.ascii_letters + string.digits + "-_.")
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"})
#: Unless an endpoint sends its own.
_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
_log = logging.getLogger("gemmtune.api")
_requests = logging.getLogger("gemmtune.requests")


class Gate:
    """Wraps the application (see the module).

    Args:
        shortcuts: by path, for GET.
    """

    def __init__(
        self, app: ASGIApp, access: Access, keyring: Keyring, meters: Meters, shortcuts: Mapping[str, Shortcut]
    ) -> None:
        self._app = app
        self._hosts = access.hosts
        self._keyring = keyring
        self._meters = meters
        self._shortcuts = shortcuts
        self._rates = Rates(access.requests_per_second)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 0
        headers = dict(scope["headers"])
        request_id = _request_id(headers.get(b"x-request-id"))
        caller = self._keyring.caller(headers.get(b"authorization"))
        scope.setdefault("state", {}).update(request_id=request_id, caller=caller)

        async def framed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = _framed(message.get("headers", ()), request_id)
            await send(message)

        try:
            await self._pass(scope, receive, framed, headers, caller)
        except HttpProblem as refusal:
            answer = document(refusal.status, refusal.kind, refusal.detail, request_id, headers=refusal.headers)
            await answer(scope, receive, framed)
        except Exception:
            fields = {"request_id": request_id, "method": scope["method"], "path": scope["path"]}
            _log.exception("unexpected failure", extra={"fields": fields})
            if status:
                raise  # half an answer is out: only closing the connection tells the client
            detail = "this is a defect of gemmtune; the log has it under this request's id"
            await document(500, "internal", detail, request_id)(scope, receive, framed)
        finally:
            self._note(scope, status, time.perf_counter() - started, request_id, caller)

    async def _pass(
        self, scope: Scope, receive: Receive, send: Send, headers: Mapping[bytes, bytes], caller: Caller | HttpProblem
    ) -> None:
        """The way in.

        Raises:
            HttpProblem: the request is refused before any endpoint sees it.
        """
        self._check_host(headers.get(b"host", b""))
        self._check_rate(scope, caller)
        query = scope["query_string"]
        if query:
            _check_query(query)
        method, path = scope["method"], scope["path"]
        if method == "GET":
            shortcut = self._shortcuts.get(path)
            if shortcut is None or not await shortcut(scope, send):
                await self._app(scope, receive, send)
            return
        limit = limits.body_limit(path)
        length = headers.get(b"content-length")
        if length is not None and (not length.isdigit() or int(length) > limit):
            raise HttpProblem(413, "body-too-large", f"the body is longer than {limit:,} bytes: send less at once")
        await self._app(scope, limits.counted(receive, limit), send)

    def _check_host(self, host: bytes) -> None:
        if self._hosts is None:
            return
        name = host.decode("latin-1").lower()
        if name not in self._hosts and name.rpartition(":")[0] not in self._hosts:
            raise HttpProblem(
                421,
                "wrong-host",
                f"this service does not answer for {name[:100]!r}: use {', '.join(sorted(self._hosts))}, or add the "
                f"name to GEMMTUNE_ALLOWED_HOSTS",
            )

    def _check_rate(self, scope: Scope, caller: Caller | HttpProblem) -> None:
        # Whoever has no good token is told apart by address: trying tokens is slowed down, using one is not.
        who = f"address {_address(scope)}" if isinstance(caller, HttpProblem) else f"caller {caller.name}"
        wait = self._rates.wait_seconds(who)
        if wait:
            raise HttpProblem(
                429,
                "too-often",
                f"{who} asks more often than this service allows: wait {wait:.2f} s, or ask for many at once with "
                f"POST /v1/best:batch",
                {"Retry-After": str(max(1, round(wait + 0.5)))},
            )

    def _note(
        self, scope: Scope, status: int, seconds: float, request_id: str, caller: Caller | HttpProblem
    ) -> None:
        # Labels come from us, never from the client: what it makes up must not grow our memory.
        route = scope.get("route")
        template = str(getattr(route, "path", "")) or (scope["path"] if scope["path"] in self._shortcuts else "none")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._meters.request(template, method, status, seconds)
        if _requests.isEnabledFor(logging.INFO):
            fields = {
                "request_id": request_id, "method": method, "path": scope["path"], "status": status,
                "ms": round(seconds * 1e3, 3), "caller": caller.name if isinstance(caller, Caller) else None,
                "address": _address(scope),
            }  # fmt: skip
            _requests.info("request", extra={"fields": fields})


def _framed(given: Iterable[tuple[bytes, bytes]], request_id: str) -> list[tuple[bytes, bytes]]:
    headers = list(given)
    names = {name for name, _ in headers}
    headers += [pair for pair in _HEADERS if pair[0] not in names]
    headers.append((b"x-request-id", request_id.encode()))
    return headers


def _request_id(given: bytes | None) -> str:
    text = given.decode("latin-1") if given else ""
    return text if 0 < len(text) <= 100 and _ID_CHARACTERS.issuperset(text) else secrets.token_hex(8)


def _check_query(query: bytes) -> None:
    if len(query) > limits.MOST_QUERY_BYTES:
        detail = f"the query is longer than {limits.MOST_QUERY_BYTES:,} bytes: shorten it"
        raise HttpProblem(414, "query-too-long", detail)
    if twice := limits.repeated_parameter(query):
        raise HttpProblem(422, "malformed-request", f"{twice[:80]} is given twice: give each parameter once")


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else "unknown"
