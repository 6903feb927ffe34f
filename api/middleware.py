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
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.access import AccessPolicy
from api.addresses import ClientAddresses
from api.auth import Caller, TokenCache
from api.bodies import Bodies, LimitedBody, SlowReader, discard
from api.exchange import Exchange
from api.heads import answer_head
from api.http_errors import HttpError
from api.limits import RateLimiter, check_coding, check_headers, check_query
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
        exchange = self._begin(scope)
        if (turn := self._turns.begin(exchange.who, exchange.started)) is not None:
            await turn
        try:
            self._admit(exchange)
            text = self._fast_answer(exchange)
            if text is not None and not isinstance(text, bytes):
                text = await text()
            if text is None:
                await self._pass_on(exchange, receive, send)
            else:
                start, end = exchange.answer(text)
                await send(start)
                await send(end)
        except HttpError as refusal:
            await _refuse(exchange, refusal, receive, send)
        except SlowReader as slow:
            fields = {"request_id": exchange.request_id}
            _log.warning("%s: %s; its connection is closed", exchange.who, slow, extra={"fields": fields})
            raise
        except Exception:
            fields = {"request_id": exchange.request_id, "method": scope["method"], "path": scope["path"]}
            _log.exception("unexpected failure", extra={"fields": fields})
            if exchange.status:
                raise  # the response has begun: only closing the connection tells the client
            detail = "gemmtune has a defect; the service's log has the details under this request's id"
            defect = HttpError(500, "internal", detail)
            await defect.response(exchange.request_id)(scope, receive, exchange.sending(send))
        finally:
            if exchange.body is not None:
                exchange.body.release(exchange.status)
            self._record(exchange)

    def answer_now(self, scope: Scope, send: Callable[[Message], object]) -> bool:
        """Answers a plain GET from memory, on the calling thread; everything else is left to the event loop.

        Args:
            send: need not be awaited.

        Returns:
            False if nothing was sent, counted or logged.
        """
        fast_path = self._fast_paths.get(scope["path"])
        if fast_path is None or scope["method"] != "GET":
            return False
        exchange = self._begin(scope)
        headers, caller, who = exchange.headers, exchange.caller, exchange.who
        if (
            isinstance(caller, HttpError) or len(headers) != len(scope["headers"])
            or not self._knows(headers.get(b"host", b""))
        ):  # fmt: skip
            return False
        # Callers that hurry take turns on the event loop.
        if self._rate_limiter.hurries(who):
            return False
        text = fast_path(scope["query_string"], caller)
        if not isinstance(text, bytes):
            return False
        self._rate_limiter.wait_seconds(who)
        start, end = exchange.answer(text)
        send(start)
        send(end)
        self._record(exchange)
        return True

    def _begin(self, scope: Scope) -> Exchange:
        started, headers = time.perf_counter(), dict(scope["headers"])
        caller, address = self._token_cache.caller(headers.get(b"authorization")), self._addresses.of(scope)
        # Callers without a valid token are counted by address, which slows down guessing tokens but not using them.
        who = f"address {address}" if isinstance(caller, HttpError) else f"caller {caller.name}"
        return Exchange(scope, started, headers, caller, address, who, self._request_id(headers))

    def _request_id(self, headers: Mapping[bytes, bytes]) -> str:
        given = headers.get(b"x-request-id")
        safe = given and _REQUEST_ID.fullmatch(given)
        return safe[0].decode() if safe else f"{self._process}-{next(self._ids):x}"

    def _admit(self, exchange: Exchange) -> None:
        """Refuses what this service accepts from nobody, whatever is asked.

        Raises:
            HttpError: a header is repeated, the host or the origin is wrong, or the caller asks too often.
        """
        scope, headers = exchange.scope, exchange.headers
        if len(headers) != len(scope["headers"]):
            check_headers(scope["headers"])
        if not self._knows(host := headers.get(b"host", b"")):
            raise self._wrong_host(host)
        if scope["method"] not in _BODILESS:
            self._check_origin(headers)
        self._check_rate(scope["path"], exchange.who, exchange.address)

    def _fast_answer(self, exchange: Exchange) -> bytes | Callable[[], Awaitable[bytes | None]] | None:
        scope, caller = exchange.scope, exchange.caller
        fast_path = self._fast_paths.get(scope["path"])
        if fast_path is None or scope["method"] != "GET" or isinstance(caller, HttpError):
            return None
        return fast_path(scope["query_string"], caller)

    async def _pass_on(self, exchange: Exchange, receive: Receive, send: Send) -> None:
        """Lets the application answer, after the body has arrived.

        Raises:
            HttpError: the query or the body breaks a limit, or a body's sender is unknown.
        """
        scope = exchange.scope
        scope.setdefault("state", {}).update(
            request_id=exchange.request_id, caller=exchange.caller, who=exchange.who
        )  # fmt: skip
        check_query(scope["query_string"])
        # Probes answer everybody, and read no body.
        if scope["method"] not in _BODILESS and scope["path"] not in _PROBES:
            # Nothing of a body is kept, let alone parsed, before its sender is known.
            if isinstance(exchange.caller, HttpError):
                raise exchange.caller
            check_coding(exchange.headers.get(b"content-encoding", b""))
            length = exchange.headers.get(b"content-length")
            exchange.body = LimitedBody(self._bodies, scope["path"], length, exchange.who, receive)
            await exchange.body.read()
            receive = exchange.body.receive
        if scope["method"] == "HEAD":
            await answer_head(self._app, scope, receive, exchange.sending(send))
        else:
            await self._app(scope, receive, exchange.sending(send))

    def _knows(self, host: bytes) -> bool:
        if self._hosts is None:
            return True
        name = host.decode("latin-1").lower()
        return name in self._hosts or name.rpartition(":")[0] in self._hosts

    def _wrong_host(self, host: bytes) -> HttpError:
        name, known = host.decode("latin-1").lower()[:100], ", ".join(sorted(self._hosts or ()))
        return HttpError(421, "wrong-host", f"this service does not accept requests for host {name!r}: use "
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

    def _record(self, exchange: Exchange) -> None:
        scope, caller, status = exchange.scope, exchange.caller, exchange.status
        path, method = scope["path"], scope["method"]
        seconds = time.perf_counter() - exchange.started
        # Metric labels never come from the client: made-up paths and methods must not grow our memory.
        template = path if path in self._fast_paths else str(getattr(scope.get("route"), "path", "")) or "none"
        self._requests.count(template, method if method in _METHODS else "other", status, seconds)
        name = caller.name if isinstance(caller, Caller) else None
        self._log.add(exchange.request_id, method, path, status, seconds, name, exchange.address)


async def _refuse(exchange: Exchange, refusal: HttpError, receive: Receive, send: Send) -> None:
    """Answers with a refusal; before that reads what the client still sends, or it would never see the answer."""
    scope = exchange.scope
    unread = exchange.body is None or refusal.status_code == 413
    if unread and scope["method"] not in _BODILESS and b"expect" not in exchange.headers:
        await discard(receive)
    await refusal.response(exchange.request_id)(scope, receive, exchange.sending(send))
