"""A thin client of the HTTP service."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import httpx2


class GemmtuneError(Exception):
    """The service refused, with its reason.

    Attributes:
        status: HTTP status; 0 when the service can't be reached.
        kind: the problem's type, as in `/problems/bad-input`.
    """

    def __init__(self, status: int, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind


@dataclass(frozen=True, slots=True)
class BestAnswer:
    """The best known config for a problem.

    Attributes:
        source: `measured`, `nearest`, `predicted`, `default` or `none`.
        family, knobs: what to run; None and empty when nothing is legal.
        time_us, tflops: measured, or estimated unless `source` is `measured`.
        why: one sentence on the source.
        document: the whole answer, evidence included.
    """

    source: str
    family: str | None
    knobs: Mapping[str, int | str]
    time_us: float | None
    tflops: float | None
    why: str
    document: Mapping[str, Any]


class Client:
    """Talks to one service.

    Args:
        url: of the service, as in `http://127.0.0.1:8643`.
        transport: for tests; the network by default.
    """

    def __init__(self, url: str, *, seconds: float = 10.0, transport: httpx2.BaseTransport | None = None) -> None:
        self._http = httpx2.Client(base_url=url, timeout=seconds, transport=transport)

    def best(
        self, m: int, n: int, k: int, dtype: str = "bf16", layout: str = "nt", device: str | None = None
    ) -> BestAnswer:
        """The best known config for C[M,N] = A·B over K.

        Raises:
            GemmtuneError: the problem is none, or the service is not there.
        """
        query: dict[str, str | int] = {"m": m, "n": n, "k": k, "dtype": dtype, "layout": layout}
        document = self._json("GET", "/v1/best", params=query | ({"device": device} if device else {}))
        config = document["config"] or {"family": None, "knobs": {}}
        return BestAnswer(
            document["source"], config["family"], config["knobs"], document["time_us"], document["tflops"],
            document["why"], document,
        )  # fmt: skip

    def explain(
        self, m: int, n: int, k: int, knobs: Mapping[str, int | str], dtype: str = "bf16", layout: str = "nt"
    ) -> dict[str, Any]:
        """What the rules say of a config: `legal`, `broken`, `nearest`, `derived`.

        Raises:
            GemmtuneError: the problem or the config is malformed.
        """
        problem = {"m": m, "n": n, "k": k, "dtype": dtype, "layout": layout}
        return self._json("POST", "/v1/explain", json={"problem": problem, "knobs": dict(knobs)})

    def table(self, device: str, content: str | None = None) -> dict[str, Any] | None:
        """Every best of a device; None when it still is what `content` (a table's content hash) names.

        Raises:
            GemmtuneError: nothing was tuned on that device.
        """
        headers = {"If-None-Match": f'"{content}"'} if content else {}
        response = self._send("GET", f"/v1/tables/{device}", headers=headers)
        return None if response.status_code == 304 else dict(response.json())

    def measurements(self, **filters: str) -> Iterator[dict[str, Any]]:
        """Every measurement, page by page.

        Args:
            filters: `problem` (a key), `device`, `outcome`.
        """
        cursor: str | None = None
        while True:
            page = self._json("GET", "/v1/measurements", params=filters | ({"cursor": cursor} if cursor else {}))
            yield from page["items"]
            cursor = page["next"]
            if cursor is None:
                return

    def close(self) -> None:
        """Closes connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _json(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401  (httpx2's own)
        return dict(self._send(method, path, **arguments).json())

    def _send(self, method: str, path: str, **arguments: Any) -> httpx2.Response:  # noqa: ANN401
        try:
            response = self._http.request(method, path, **arguments)
        except httpx2.TransportError as error:
            detail = f"{self._http.base_url} can't be reached ({error}): start it with `gemmtune serve`"
            raise GemmtuneError(0, "unreachable", detail) from error
        if response.status_code >= 400:
            raise _refusal(response)
        return response


def _refusal(response: httpx2.Response) -> GemmtuneError:
    try:
        problem = response.json()
        return GemmtuneError(response.status_code, str(problem["type"]), str(problem["detail"]))
    except (ValueError, KeyError, TypeError):
        return GemmtuneError(response.status_code, "unknown", f"the service answered {response.status_code}")
