"""JSON over HTTP to the service, with its refusals as our own errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Self

import httpx2

from tuner.errors import (
    CampaignEnded,
    CampaignError,
    FleetError,
    KeyReused,
    LeaseLost,
    ResultRefused,
    SlotTaken,
    TunerError,
    UnknownCampaign,
    Unreachable,
    WorkerGone,
)

#: What a problem's type means here.
_ERRORS: Final[dict[str, type[TunerError]]] = {
    "unknown-campaign": UnknownCampaign,
    "campaign-ended": CampaignEnded,
    "idempotency-key-reused": KeyReused,
    "bad-campaign": CampaignError,
    "worker-gone": WorkerGone,
    "slot-taken": SlotTaken,
    "lease-lost": LeaseLost,
    "result-refused": ResultRefused,
}
#: Refusals that time may lift.
_FOR_NOW: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


class Service:
    """One service, reached at its URL.

    Args:
        url: as in `https://tune.example:8643`; plain HTTP is refused beyond this machine when a token is sent.
        token: of `gemmtune token create`; None where the service asks for none.
        transport: for tests; the network by default.

    Raises:
        FleetError: a URL that is none, or that would show the token to the network.
    """

    def __init__(
        self, url: str, token: str | None = None, *, seconds: float = 30.0, insecure: bool = False,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:  # fmt: skip
        try:
            parsed = httpx2.URL(url)
        except httpx2.InvalidURL as error:
            raise FleetError(f"{url!r} is no URL of a service ({error}): write http://host:port") from error
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise FleetError(f"{url!r} is no URL of a service: write http://host:port or https://host")
        if token and parsed.scheme == "http" and not insecure and parsed.host not in ("127.0.0.1", "localhost", "::1"):
            raise FleetError(
                f"{url} would carry the token in the clear: use https, or say --insecure inside a private network"
            )
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.url = url
        self._http = httpx2.Client(base_url=url, timeout=seconds, headers=headers, transport=transport)

    def call(
        self, method: str, path: str, body: object = None, *, params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None, seconds: float | None = None,
    ) -> Any:  # noqa: ANN401  (JSON)  # fmt: skip
        """The answer's JSON; None for an empty one.

        Raises:
            Unreachable: no answer, or one that says to come again.
            FleetError: a refusal for good, of a kind that is told by its class, or an answer that is no JSON.
        """
        try:
            response = self._http.request(
                method, path, params=params, timeout=seconds if seconds is not None else httpx2.USE_CLIENT_DEFAULT,
                content=None if body is None else json.dumps(body, allow_nan=False).encode(),
                headers={"Content-Type": "application/json"} | dict(headers or {}),
            )  # fmt: skip
        except httpx2.TransportError as error:
            raise Unreachable(f"{self.url} does not answer ({error}): start it with `gemmtune serve`") from error
        if response.status_code >= 400:
            raise refusal(response.status_code, response.content)
        try:
            return response.json() if response.content else None
        except ValueError as error:
            raise FleetError(f"{self.url} answers, but not as gemmtune does: check the URL and its port") from error

    def close(self) -> None:
        """Closes connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def refusal(status: int, content: bytes) -> TunerError:
    """The error that an answer means."""
    try:
        document = json.loads(content)
        word, detail = str(document["type"]).rpartition("/")[2], str(document["detail"])
    except (ValueError, KeyError, TypeError):
        word, detail = "unknown", content[:200].decode(errors="replace")
    if word in _ERRORS:
        return _ERRORS[word](detail)
    if status in _FOR_NOW:
        return Unreachable(f"the service can't for now ({status} {word}): {detail}")
    return FleetError(f"the service refused ({status} {word}): {detail}")
