"""The HTTP client of the service: JSON in, JSON out, refusals as exceptions.

Agents, `gemmtune campaign` and the user's `gemmtune.Client` share it; they differ in the exceptions that they raise.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from operator import index
from typing import Any, Final, Self

import httpx2

from tuner import errors
from tuner.errors import FleetError, TunerError, Unreachable
from tuner.fleet.unanswered import HERE, goes_away, unanswered
from tuner.settings import set_among

#: Makes an exception of an HTTP status, an error type such as `/problems/bad-input`, and a sentence. Status 0 means
#: that no response of the service arrived.
ErrorOf = Callable[[int, str, str], Exception]

#: Refusals by the error type in a response.
_REFUSALS: Final[dict[str, type[TunerError]]] = {
    "unknown-campaign": errors.UnknownCampaign,
    "campaign-ended": errors.CampaignEnded,
    "idempotency-key-reused": errors.KeyReused,
    "bad-campaign": errors.CampaignError,
    "worker-gone": errors.WorkerGone,
    "unknown-worker": errors.UnknownWorker,
    "slot-taken": errors.SlotTaken,
    "lease-lost": errors.LeaseLost,
    "unknown-round": errors.UnknownRound,
    "result-refused": errors.ResultRefused,
    # A report that breaks the schema, or that can't be stored, is refused each time.
    "malformed-request": errors.ResultRefused,
    "malformed-body": errors.ResultRefused,
    "body-too-large": errors.ResultRefused,
    "unstorable-value": errors.ResultRefused,
}
#: What is wrong whatever was measured. Other values that a schema refuses may come from the device.
_OF_SCHEMA: Final = re.compile(r"^\S+: (no such field|Field required|Input should be ')")
#: A stream that is silent for this long is broken: a service sends a comment every 15 s.
_STREAM_SECONDS: Final = 60.0
#: Longest timeout of a call: a day.
_MOST_SECONDS: Final = 86_400
#: Statuses of refusals after which a retry may succeed, beside those of a server that fails.
_TEMPORARY: Final = frozenset({408, 425, 429})
#: Variables that the HTTP library reads.
_FROM_ENVIRONMENT: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")


def http_client(
    url: httpx2.URL, headers: Mapping[str, str], seconds: float, transport: httpx2.BaseTransport | None = None
) -> httpx2.Client:
    """A connection that goes through the proxies that the environment names, but for what stays on this machine.

    Raises:
        FleetError: what the environment names is no proxy, or no certificates.
    """
    away = goes_away(url)
    try:
        return httpx2.Client(base_url=url, timeout=seconds, headers=headers, transport=transport, trust_env=away)
    except (ImportError, OSError, ValueError, httpx2.InvalidURL) as error:
        # Only names: a proxy's URL may hold a password.
        named = ", ".join(set_among(_FROM_ENVIRONMENT))
        raise FleetError(f"{named} can't be used for {url.host}: {error}; correct or unset it") from error


def service_url(url: str, with_token: bool, error_of: ErrorOf) -> tuple[httpx2.URL, str]:
    """A service's URL, to connect to and as logs may show it: without a user and a password.

    Raises:
        What `error_of` makes: it is malformed or no service's, or its password would be sent in place of the token.
    """
    if not isinstance(url, str):
        raise error_of(0, "bad-url", f"{url!r} is not a URL: write http://host:port")
    try:
        parsed = httpx2.URL(url)
        # As whoever looks the name up: an empty or a long part of it raises no error of the client's there.
        parsed.host.encode("idna")
    except (httpx2.InvalidURL, UnicodeError) as error:
        raise error_of(0, "bad-url", f"{url!r} is not a URL ({error}): write http://host:port") from error
    shown = str(parsed.copy_with(userinfo=b"")) if parsed.userinfo else url
    if with_token and parsed.userinfo:
        raise error_of(
            0, "bad-url",
            f"{shown} was given with a user, whose password HTTP sends in place of the token: leave one out",
        )  # fmt: skip
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise error_of(0, "bad-url", f"{shown!r} is not a service's URL: write http://host:port or https://host")
    # Of a port beyond these the system takes the lowest 16 bits, and whatever listens there would get the token.
    if parsed.query or not 0 < (1 if parsed.port is None else parsed.port) < 1 << 16:
        detail = f"{shown!r} has a query, or a port that is not from 1 to 65,535: write http://host:port"
        raise error_of(0, "bad-url", detail)
    return parsed, shown


def is_temporary(status: int) -> bool:
    """Whether a call that ended with this status may succeed later."""
    # Proxies have statuses of their own for a service behind them that does not answer, such as 522.
    return status in _TEMPORARY or status >= 500


def fleet_error(status: int, kind: str, detail: str) -> TunerError:
    """The tuner's exception for a failed call: `Unreachable` if a later attempt may succeed."""
    name = kind.rpartition("/")[2]
    if status == 0:
        return Unreachable(detail) if name == "unreachable" else FleetError(detail)
    if name == "malformed-request" and _OF_SCHEMA.search(detail):
        return errors.OtherVersion(detail)
    if name in _REFUSALS:
        return _REFUSALS[name](detail)
    if is_temporary(status):
        return Unreachable(f"the service is temporarily unavailable ({status} {name}): {detail}")
    return FleetError(f"the service refused ({status} {name}): {detail}")


class ServiceClient:
    """A connection to one service.

    Args:
        url: as in `https://tune.example:8643`; plain HTTP beyond this machine is refused if a token would be sent.
        token: made by `gemmtune token create`; None if the service requires none.
        seconds: timeout of a call.
        insecure: send the token over plain HTTP all the same.
        transport: replaces the network in tests.
        error_of: makes the exceptions.

    Raises:
        FleetError, or what `error_of` makes: the URL is malformed, or would expose the token to the network; the token
            or the timeout is none.
    """

    def __init__(
        self, url: str, token: str | None = None, *, seconds: float = 30.0, insecure: bool = False,
        transport: httpx2.BaseTransport | None = None, error_of: ErrorOf = fleet_error,
    ) -> None:  # fmt: skip
        self._error_of = error_of
        self._address, self.url = service_url(url, bool(token), error_of)
        parsed = self._address
        if token and parsed.scheme == "http" and not insecure and parsed.host not in HERE:
            raise error_of(
                0, "insecure-url",
                f"{self.url} would send the token in the clear: use https, or --insecure (in Python insecure=True) "
                "inside a private network",
            )  # fmt: skip
        if token and not (isinstance(token, str) and carried(token)):
            why = f"is of type {type(token).__name__}"
            if isinstance(token, str):
                why = "has a character that no token has, such as a line break or a space"
            detail = f"the token {why}: pass it as `gemmtune token create` printed it"
            raise error_of(0, "bad-token", detail)
        if not (isinstance(seconds, int | float) and 0 < seconds <= _MOST_SECONDS):
            detail = f"seconds = {seconds!r} is no timeout: give a number above 0, up to {_MOST_SECONDS:,}"
            raise error_of(0, "bad-timeout", detail)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._open = partial(http_client, parsed, headers, seconds, transport)
        try:
            self._http, self._process = self._open(), os.getpid()
        except FleetError as error:
            raise error_of(0, "bad-environment", str(error)) from error

    def call(
        self, method: str, path: str, body: object = None, *, params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None, seconds: float | None = None, has: str = "",
    ) -> Any:  # noqa: ANN401  (JSON)  # fmt: skip
        """The response's JSON; None if its body is empty.

        Args:
            has: a member that the JSON has if a gemmtune service answers.

        Raises:
            Unreachable: no response, or a temporary refusal.
            FleetError: a permanent refusal, by its subclass where it has one, or a body that is not JSON.
        """
        response = self._response(
            method, path, params=params, timeout=seconds if seconds is not None else httpx2.USE_CLIENT_DEFAULT,
            content=None if body is None else self._written(body),
            headers={"Content-Type": "application/json"} | self._sendable(headers or {}),
        )  # fmt: skip
        try:
            document = response.json() if response.content else None
        except (ValueError, RecursionError) as error:
            raise self.foreign() from error
        if has and not (isinstance(document, dict) and has in document):
            raise self.foreign()
        return document

    def document(
        self, method: str, path: str, body: object = None, *, params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None, seconds: float | None = None, has: str = "",
    ) -> dict[str, Any]:  # fmt: skip
        """The response's JSON object; anything else is not gemmtune's.

        Raises:
            Unreachable, FleetError: as `call`.
        """
        said = self.call(method, path, body, params=params, headers=headers, seconds=seconds, has=has)
        if not isinstance(said, dict):
            raise self.foreign()
        return said

    def items(
        self, method: str, path: str, body: object = None, *, params: Mapping[str, Any] | None = None
    ) -> list[Any]:
        """The items of a list that has no pages.

        Raises:
            Unreachable, FleetError: as `call`.
        """
        return self._items(self.document(method, path, body, params=params, has="items"))

    def foreign(self, how: str = "check the URL and its port") -> Exception:
        """The exception for a response that is not gemmtune's."""
        detail = f"{self.url} answers, but not as gemmtune does: {how}"
        return self._error_of(0, "not-gemmtune", detail)

    def fetch(self, path: str, params: Mapping[str, Any]) -> bytes:
        """The body of a response that is not JSON.

        Raises:
            Unreachable, FleetError: as `call`.
        """
        response = self._response("GET", path, params=params)
        # A proxy's page to log in comes with status 200, and would be kept as the file.
        if not response.content or _media_type(response.headers) == "text/html":
            raise self.foreign()
        return bytes(response.content)

    def pages(self, path: str, params: Mapping[str, Any], limit: int) -> Iterator[Any]:
        """The items of a list, fetched in pages of `limit`."""
        query = {"limit": limit, **params}
        while True:
            page = self.document("GET", path, params=query, has="next")
            yield from self._items(page)
            if page["next"] is None:
                return
            query["cursor"] = page["next"]

    def lines(
        self, path: str, params: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> Iterator[str]:
        """The lines of a stream, as they come.

        Raises:
            Unreachable: no response, or the stream broke off.
            FleetError: a refusal, by its subclass where it has one.
        """
        try:
            with self._connected().stream(
                "GET", path, params=params, headers=self._sendable(headers or {}), timeout=_STREAM_SECONDS
            ) as said:
                self._check(said.status_code, said.headers, said.read)
                if _media_type(said.headers) != "text/event-stream":
                    raise self.foreign()
                said.encoding = "utf-8"  # whatever its headers say
                yield from _lines(said.iter_text())
        except httpx2.TransportError as error:
            raise self._error_of(0, "unreachable", f"{self.url} broke the stream off ({error}): resume it") from error
        except httpx2.DecodingError as error:
            raise self.foreign() from error

    def close(self) -> None:
        """Closes connections; nothing can be asked any more."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _connected(self) -> httpx2.Client:
        """This process's connections: after a fork, those of its parent would bring it answers to the parent.

        Raises:
            What `error_of` makes: they are closed.
        """
        if self._process != os.getpid():
            self._http, self._process = self._open(), os.getpid()
        if self._http.is_closed:
            raise self._error_of(0, "closed", "this client is closed: make another one")
        return self._http

    def _response(self, method: str, path: str, **options: Any) -> httpx2.Response:  # noqa: ANN401
        try:
            response = self._connected().request(method, path, **options)
        except httpx2.TransportError as error:
            failed, fix = unanswered(error, self._address)
            raise self._error_of(0, "unreachable", f"{self.url} {failed}: {fix}") from error
        except httpx2.DecodingError as error:
            raise self.foreign() from error
        self._check(response.status_code, response.headers, lambda: response.content)
        return response

    def _written(self, body: object) -> bytes:
        try:
            # NumPy's whole numbers are none of JSON's.
            return json.dumps(body, allow_nan=False, default=index).encode()
        except (TypeError, ValueError, RecursionError) as error:
            detail = f"this request is no JSON ({error}): give texts, finite numbers of Python, lists and mappings"
            raise self._error_of(0, "bad-body", detail) from error

    def _sendable(self, headers: Mapping[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            # What callers hand on may be of any type.
            if not isinstance(value, str) or not carried(value):
                detail = (
                    f"{name} is {repr(value)[:80]}, which no header carries: use printable ASCII characters in a text, "
                    "and no space at either end"
                )
                raise self._error_of(0, "bad-header", detail)
        return dict(headers)

    def _items(self, document: Mapping[str, Any]) -> list[Any]:
        found = document.get("items")
        if not isinstance(found, list):
            raise self.foreign()
        return found

    def _check(self, status: int, headers: Mapping[str, str], content: Callable[[], bytes]) -> None:
        """Raises the exception for a response that is no answer."""
        if status >= 400:
            refusal = self._refusal(status, content())
            if hasattr(refusal, "retry_after"):
                refusal.retry_after = _seconds_asked(headers.get("retry-after", ""))
            raise refusal
        # gemmtune sends nobody to another address, and says Not Modified only where it was asked.
        if status >= 300 and status != 304:
            raise self.foreign(f"it redirects to {headers.get('location', 'nowhere')[:200]}; give that address")

    def _refusal(self, status: int, content: bytes) -> Exception:
        try:
            document = json.loads(content)
            kind, detail = str(document["type"]), str(document["detail"])
        except (ValueError, KeyError, TypeError, RecursionError):
            kind = "not-gemmtune"
            detail = f"{self.url} answers with status {status}, but not as gemmtune does: check the URL and its port"
        return self._error_of(status, kind, detail)


def _media_type(headers: Mapping[str, str]) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def carried(value: str) -> bool:
    """Whether HTTP carries a header's value as it is."""
    return value.isascii() and value.isprintable() and value == value.strip()


def _seconds_asked(said: str) -> float:
    """The wait in a `Retry-After`, which holds seconds or a date; 0 where it holds neither."""
    try:
        seconds = float(said) if said.strip().isdigit() else (_moment(said) - datetime.now(UTC)).total_seconds()
    except (ValueError, OverflowError):
        return 0.0
    return seconds if 0 < seconds < math.inf else 0.0


def _moment(said: str) -> datetime:
    found = parsedate_to_datetime(said)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _lines(parts: Iterator[str]) -> Iterator[str]:
    """Lines that end with a line feed; httpx ends them also at characters that JSON may hold, such as U+2028."""
    rest = ""
    for part in parts:
        *lines, rest = (rest + part).split("\n")
        yield from (line.removesuffix("\r") for line in lines)
    if rest:
        yield rest
