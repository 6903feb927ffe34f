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
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import limits
from api.access import Access
from api.auth import Caller, Keyring
from api.limits import Rates
from api.logs import RequestLog
from api.meters import Meters
from api.problems import HttpProblem, document

#: Answers a GET before the framework is asked: JSON for a query string and a caller, or None for the long way.
Shortcut = Callable[[bytes, Caller], bytes | None]

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
_JSON_HEADERS: Final = ((b"content-type", b"application/json"), *_HEADERS)
_log = logging.getLogger("gemmtune.api")


class Gate:
    """Wraps the application (see the module).

    Args:
        shortcuts: by path, for GET.
    """

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        keyring: Keyring,
        meters: Meters,
        log: RequestLog,
        shortcuts: Mapping[str, Shortcut],
    ) -> None:
        self._app = app
        self._hosts = access.hosts
        self._keyring = keyring
        self._requests = meters.requests
        self._log = log
        self._shortcuts = shortcuts
        self._ids = count()
        self._run = secrets.token_hex(4)
        self._rates = Rates(access.requests_per_second)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 0
        headers = dict(scope["headers"])
        given = headers.get(b"x-request-id")
        request_id = harmless(given) if given else ""
        if not request_id:
            request_id = f"{self._run}-{next(self._ids):x}"
        caller = self._keyring.caller(headers.get(b"authorization"))
        scope.setdefault("state", {}).update(request_id=request_id, caller=caller)

        async def framed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = _framed(message.get("headers", ()), request_id)
            await send(message)

        try:
            self._check_host(headers.get(b"host", b""))
            self._check_rate(scope, caller)
            text = self._short_way(scope, caller)
            if text is None:
                await self._long_way(scope, receive, framed, headers)
            else:
                status = 200
                ours = [*_JSON_HEADERS, (b"content-length", b"%d" % len(text)), (b"x-request-id", request_id.encode())]
                await send({"type": "http.response.start", "status": 200, "headers": ours})
                await send({"type": "http.response.body", "body": text})
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

    def _short_way(self, scope: Scope, caller: Caller | HttpProblem) -> bytes | None:
        shortcut = self._shortcuts.get(scope["path"])
        if shortcut is None or scope["method"] != "GET" or isinstance(caller, HttpProblem):
            return None
        return shortcut(scope["query_string"], caller)

    async def _long_way(self, scope: Scope, receive: Receive, send: Send, headers: Mapping[bytes, bytes]) -> None:
        """Through the framework.

        Raises:
            HttpProblem: the query or the body is refused before any endpoint sees it.
        """
        if scope["query_string"]:
            _check_query(scope["query_string"])
        if scope["method"] != "GET":
            limit = limits.body_limit(scope["path"])
            length = headers.get(b"content-length")
            if length is not None and (not length.isdigit() or int(length) > limit):
                raise HttpProblem(413, "body-too-large", f"the body is longer than {limit:,} bytes: send less at once")
            receive = limits.counted(receive, limit)
        await self._app(scope, receive, send)

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

    def _note(self, scope: Scope, status: int, seconds: float, request_id: str, caller: Caller | HttpProblem) -> None:
        # Labels come from us, never from the client: what it makes up must not grow our memory.
        route = scope.get("route")
        template = str(getattr(route, "path", "")) or (scope["path"] if scope["path"] in self._shortcuts else "none")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._requests.count(template, method, status, seconds)
        name = caller.name if isinstance(caller, Caller) else None
        self._log.note(request_id, method, scope["path"], status, seconds, name, _address(scope))


def _framed(given: Iterable[tuple[bytes, bytes]], request_id: str) -> list[tuple[bytes, bytes]]:
    headers = list(given)
    names = {name for name, _ in headers}
    headers += [pair for pair in _HEADERS if pair[0] not in names]
    headers.append((b"x-request-id", request_id.encode()))
    return headers


def harmless(given: bytes) -> str:
    """A client's own request id, if it can be shown anywhere; else nothing."""
    text = given.decode("latin-1")
    return text if 0 < len(text) <= 100 and _ID_CHARACTERS.issuperset(text) else ""


def _check_query(query: bytes) -> None:
    if len(query) > limits.MOST_QUERY_BYTES:
        detail = f"the query is longer than {limits.MOST_QUERY_BYTES:,} bytes: shorten it"
        raise HttpProblem(414, "query-too-long", detail)
    if twice := limits.repeated_parameter(query):
        raise HttpProblem(422, "malformed-request", f"{twice[:80]} is given twice: give each parameter once")


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else "unknown"
