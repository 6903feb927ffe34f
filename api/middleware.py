"""The middleware that wraps every request.

It assigns a request id, authenticates the caller, refuses requests for a wrong host or above a limit, sets security
headers, turns unexpected exceptions into error documents, and logs and times everything.
It is plain ASGI because Starlette's `BaseHTTPMiddleware` costs more than most of our endpoints.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from itertools import count
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.access import AccessPolicy
from api.addresses import ClientAddresses
from api.auth import Caller, TokenCache
from api.bodies import Bodies, LimitedBody, SlowReader, discard, send_in_pieces
from api.heads import answer_head
from api.http_errors import HttpError
from api.limits import RateLimiter, check_headers, check_query
from api.logs import RequestLog
from api.metrics import Metrics
from api.turns import Turns

#: Answers a GET without the framework: JSON for a query string and a caller; or a call that reads it from the store, on
#: the event loop; or None to let the framework handle it.
FastPath = Callable[[bytes, Caller], bytes | Callable[[], Awaitable[bytes | None]] | None]

#: A client's own request id if it is safe to print anywhere.
_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,100}")
_BODILESS: Final = frozenset({"GET", "HEAD"})
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"})
#: Probes have buckets of their own, by address: a busy caller must not look like a dead service.
_PROBES: Final = frozenset({"/healthz", "/readyz"})
_PROBES_PER_SECOND: Final = 50.0
#: Response headers, unless an endpoint sets its own.
_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
_JSON_HEADERS: Final = ((b"content-type", b"application/json"), *_HEADERS)
_log = logging.getLogger("gemmtune.api")


class RequestMiddleware:
    """Wraps the application.

    Args:
        fast_paths: fast paths for GET requests, by URL path.
    """

    def __init__(
        self, app: ASGIApp, access: AccessPolicy, token_cache: TokenCache, metrics: Metrics, log: RequestLog,
        fast_paths: Mapping[str, FastPath],
    ) -> None:  # fmt: skip
        self._app, self._hosts, self._token_cache = app, access.hosts, token_cache
        self._requests, self._log, self._fast_paths = metrics.requests, log, fast_paths
        self._ids, self._process = count(), secrets.token_hex(4)
        self._rate_limiter = RateLimiter(access.requests_per_second)
        self._probe_limiter = RateLimiter(_PROBES_PER_SECOND)
        self._addresses, self._bodies = ClientAddresses(access.proxies), Bodies()
        self._turns = Turns(self._rate_limiter.hurries)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 0
        body: LimitedBody | None = None
        headers = dict(scope["headers"])
        request_id = self._request_id(headers)
        caller = self._token_cache.caller(headers.get(b"authorization"))
        address = self._addresses.of(scope)
        # Callers without a valid token are counted by address, which slows down guessing tokens but not using them.
        who = f"address {address}" if isinstance(caller, HttpError) else f"caller {caller.name}"

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = _with_headers(message.get("headers", ()), request_id)
                await send(message)
            else:
                await send_in_pieces(send, message)

        if (turn := self._turns.begin(who, started)) is not None:
            await turn
        try:
            if len(headers) != len(scope["headers"]):
                check_headers(scope["headers"])
            self._check_host(headers.get(b"host", b""))
            if scope["method"] not in _BODILESS:
                self._check_origin(headers)
            self._check_rate(scope["path"], who, address)
            text = self._fast_answer(scope, caller)
            if text is not None and not isinstance(text, bytes):
                text = await text()
            if text is None:
                scope.setdefault("state", {}).update(request_id=request_id, caller=caller, who=who)
                check_query(scope["query_string"])
                # Probes answer everybody, and read no body.
                if scope["method"] not in _BODILESS and scope["path"] not in _PROBES:
                    # Nothing of a body is kept, let alone parsed, before its sender is known.
                    if isinstance(caller, HttpError):
                        raise caller
                    body = LimitedBody(self._bodies, scope["path"], headers.get(b"content-length"), who, receive)
                    await body.read()
                    receive = body.receive
                if scope["method"] == "HEAD":
                    await answer_head(self._app, scope, receive, send_with_headers)
                else:
                    await self._app(scope, receive, send_with_headers)
            else:
                status = 200
                for message in _json_messages(text, request_id):
                    await send(message)
        except HttpError as refusal:
            unread = body is None or refusal.status_code == 413
            if unread and scope["method"] not in _BODILESS and b"expect" not in headers:
                await discard(receive)
            await refusal.response(request_id)(scope, receive, send_with_headers)
        except SlowReader as slow:
            _log.warning("%s: %s; its connection is closed", who, slow, extra={"fields": {"request_id": request_id}})
            raise
        except Exception:
            fields = {"request_id": request_id, "method": scope["method"], "path": scope["path"]}
            _log.exception("unexpected failure", extra={"fields": fields})
            if status:
                raise  # the response has begun: only closing the connection tells the client
            detail = "gemmtune has a defect; the service's log has the details under this request's id"
            await HttpError(500, "internal", detail).response(request_id)(scope, receive, send_with_headers)
        finally:
            if body is not None:
                body.release(status)
            self._record(scope, status, time.perf_counter() - started, request_id, caller, address)

    def answer_now(self, scope: Scope, send: Callable[[Message], object]) -> bool:
        """Answers a plain GET from memory, on the calling thread; everything else is left to the event loop.

        Args:
            send: need not be awaited.

        Returns:
            False if nothing was sent, counted or logged.
        """
        if scope["path"] not in self._fast_paths:
            return False
        started, headers = time.perf_counter(), dict(scope["headers"])
        caller = self._token_cache.caller(headers.get(b"authorization"))
        if (
            isinstance(caller, HttpError) or len(headers) != len(scope["headers"])
            or not self._knows(headers.get(b"host", b""))
        ):  # fmt: skip
            return False
        # Callers that hurry take turns on the event loop.
        if self._rate_limiter.hurries(who := f"caller {caller.name}"):
            return False
        text = self._fast_answer(scope, caller)
        if not isinstance(text, bytes):
            return False
        self._rate_limiter.wait_seconds(who)
        request_id = self._request_id(headers)
        for message in _json_messages(text, request_id):
            send(message)
        address = self._addresses.of(scope)
        self._record(scope, 200, time.perf_counter() - started, request_id, caller, address)
        return True

    def _request_id(self, headers: Mapping[bytes, bytes]) -> str:
        given = headers.get(b"x-request-id")
        safe = given and _REQUEST_ID.fullmatch(given)
        return safe[0].decode() if safe else f"{self._process}-{next(self._ids):x}"

    def _fast_answer(
        self, scope: Scope, caller: Caller | HttpError
    ) -> bytes | Callable[[], Awaitable[bytes | None]] | None:
        fast_path = self._fast_paths.get(scope["path"])
        if fast_path is None or scope["method"] != "GET" or isinstance(caller, HttpError):
            return None
        return fast_path(scope["query_string"], caller)

    def _knows(self, host: bytes) -> bool:
        if self._hosts is None:
            return True
        name = host.decode("latin-1").lower()
        return name in self._hosts or name.rpartition(":")[0] in self._hosts

    def _check_host(self, host: bytes) -> None:
        if not self._knows(host):
            name, known = host.decode("latin-1").lower()[:100], ", ".join(sorted(self._hosts or ()))
            raise HttpError(421, "wrong-host", f"this service does not accept requests for host {name!r}: use "
                            f"{known}, or add the name to GEMMTUNE_ALLOWED_HOSTS")  # fmt: skip

    def _check_origin(self, headers: Mapping[bytes, bytes]) -> None:
        """Refuses orders that a browser sends for a page of another site: no token tells them from the user's own."""
        origin = headers.get(b"origin")
        if origin is None or self._token_cache.required:
            return
        if origin.partition(b"://")[2].lower() != headers.get(b"host", b"").lower():
            raise HttpError(403, "wrong-origin", f"a page of {origin.decode('latin-1')[:100]!r} may only read "
                            "(GET) here: use this service's own pages, or serve with --auth on")  # fmt: skip

    def _check_rate(self, path: str, who: str, address: str) -> None:
        limiter, bucket = (self._probe_limiter, address) if path in _PROBES else (self._rate_limiter, who)
        if wait := limiter.wait_seconds(bucket):
            detail = (f"{who} exceeds this service's request rate: wait {wait:.2f} s, or ask for many problems at once "
                      "with POST /v1/best:batch")  # fmt: skip
            raise HttpError(429, "too-often", detail, {"Retry-After": str(max(1, round(wait + 0.5)))})

    def _record(
        self, scope: Scope, status: int, seconds: float, request_id: str, caller: Caller | HttpError, address: str
    ) -> None:
        # Metric labels never come from the client: made-up paths and methods must not grow our memory.
        route = scope.get("route")
        template = str(getattr(route, "path", "")) or (scope["path"] if scope["path"] in self._fast_paths else "none")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._requests.count(template, method, status, seconds)
        name = caller.name if isinstance(caller, Caller) else None
        self._log.add(request_id, method, scope["path"], status, seconds, name, address)


def _json_messages(text: bytes, request_id: str) -> tuple[Message, Message]:
    """An answer from memory, as ASGI's two messages."""
    headers = [*_JSON_HEADERS, (b"content-length", b"%d" % len(text)), (b"x-request-id", request_id.encode())]
    start = {"type": "http.response.start", "status": 200, "headers": headers}
    return start, {"type": "http.response.body", "body": text}


def _with_headers(given: Collection[tuple[bytes, bytes]], request_id: str) -> list[tuple[bytes, bytes]]:
    names = {name for name, _ in given}
    return [*given, *(pair for pair in _HEADERS if pair[0] not in names), (b"x-request-id", request_id.encode())]
