"""A thin client of the HTTP service."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import httpx2

#: The service takes no more at once.
_MOST_PROBLEMS: Final = 10_000


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

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """From what the service said."""
        config = document["config"] or {"family": None, "knobs": {}}
        return cls(
            document["source"], config["family"], config["knobs"], document["time_us"], document["tflops"],
            document["why"], document,
        )  # fmt: skip


class Client:
    """Talks to one service.

    Args:
        url: of the service, as in `http://127.0.0.1:8643`.
        token: of `gemmtune token create`; none where the service asks for none.
        seconds: until a request is given up.
        transport: for tests; the network by default.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        seconds: float = 10.0,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx2.Client(base_url=url, headers=headers, timeout=seconds, transport=transport)

    def best(
        self, m: int, n: int, k: int, dtype: str = "bf16", layout: str = "nt", device: str | None = None
    ) -> BestAnswer:
        """The best known config for C[M,N] = A·B over K.

        Raises:
            GemmtuneError: the problem is none, or the service is not there.
        """
        query: dict[str, str | int] = {"m": m, "n": n, "k": k, "dtype": dtype, "layout": layout}
        document = self._json("GET", "/v1/best", params=query | ({"device": device} if device else {}))
        return BestAnswer.of(document)

    def best_many(self, problems: Sequence[Mapping[str, int | str]], device: str | None = None) -> list[BestAnswer]:
        """The best known configs for any number of problems, in their order.

        Args:
            problems: each with `m`, `n`, `k`, and `dtype`, `layout`, `batch` or `epilogue` where they matter.

        Raises:
            GemmtuneError: a problem is none, or the service is not there.
        """
        answers: dict[int, BestAnswer] = {}
        waiting = list(range(len(problems)))
        while waiting:
            asked, waiting = waiting[:_MOST_PROBLEMS], waiting[_MOST_PROBLEMS:]
            body = {"problems": [dict(problems[place]) for place in asked]} | ({"device": device} if device else {})
            items = self._json("POST", "/v1/best:batch", json=body)["items"]
            answers |= {place: BestAnswer.of(item) for place, item in zip(asked, items, strict=True) if item}
            # What could not be computed in time; the service remembers what it did compute.
            left = [place for place in asked if place not in answers]
            if len(left) == len(asked):
                raise GemmtuneError(0, "no-progress", f"none of {len(asked)} problems was answered: ask for fewer")
            waiting = left + waiting
        return [answers[place] for place in range(len(problems))]

    def devices(self) -> list[dict[str, Any]]:
        """The GPU models that anything is known of.

        Raises:
            GemmtuneError: the service is not there.
        """
        return list(self._json("GET", "/v1/devices")["items"])

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

    def bests(self, device: str) -> Iterator[dict[str, Any]]:
        """The entries of a device's table, page by page.

        Raises:
            GemmtuneError: nothing was tuned on that device.
        """
        return self._pages("/v1/bests", {"device": device})

    def measurements(self, **filters: str) -> Iterator[dict[str, Any]]:
        """Every measurement, page by page.

        Args:
            filters: `problem` (a key), `device`, `outcome`.

        Raises:
            GemmtuneError: a filter has a value that it can't have.
        """
        return self._pages("/v1/measurements", filters)

    def _pages(self, path: str, filters: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        query = {**filters, "limit": "1000"}
        while True:
            page = self._json("GET", path, params=query)
            yield from page["items"]
            if page["next"] is None:
                return
            query["cursor"] = page["next"]

    def close(self) -> None:
        """Closes connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
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
