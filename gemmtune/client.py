"""The user's client of the HTTP service."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Self
from urllib.parse import quote

import httpx2

from gemmtune.managing import Managing
from gemmtune.reading import PAGE, given, knobs_of, problems_of
from tuner.fleet.service_client import ServiceClient, is_temporary

#: Largest batch that the service accepts.
_MOST_PROBLEMS: Final = 10_000


class GemmtuneError(Exception):
    """The service refused a request, or can't be reached.

    Attributes:
        status: HTTP status; 0 if no response of the service arrived.
        kind: type of the error, as in `/problems/bad-input`.
        retry_after: seconds that the service, or a proxy before it, asks its caller to wait; 0 where neither says.
    """

    def __init__(self, status: int, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.retry_after = 0.0

    def __reduce__(self) -> tuple[type[Self], tuple[int, str, str], dict[str, float]]:
        # A pool of processes waits for ever for an exception that can't be made again.
        return type(self), (self.status, self.kind, str(self)), {"retry_after": self.retry_after}

    @property
    def temporary(self) -> bool:
        """Whether the same request may succeed later: the service is silent, busy or broken."""
        return self.kind == "unreachable" or is_temporary(self.status)


@dataclass(frozen=True, slots=True)
class BestAnswer:
    """The best known config for a problem.

    Attributes:
        source: `measured`, `stale` (its kernel or compiler has changed since), `recorded` (elsewhere, on a GPU
            of this model), `nearest`, `predicted` or `none`.
        family, knobs: the config to run; None and empty if no config is legal.
        time_us, tflops: measured if `source` is `measured`, `stale` or `recorded`, else estimated; None where nothing
            is known.
        why: one sentence that explains the source.
        policy: what the time stands for, as in `chain`; empty where a service does not say.
        document: the complete answer, including its evidence.
    """

    source: str
    family: str | None
    knobs: Mapping[str, int | str]
    time_us: float | None
    tflops: float | None
    why: str
    document: Mapping[str, Any]

    @property
    def policy(self) -> str:
        return str(self.document.get("policy", ""))

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """From the service's JSON.

        Raises:
            KeyError, TypeError: a member is missing, or is not what a service says.
        """
        config = document["config"] or {"family": None, "knobs": {}}
        made = cls(
            document["source"], config["family"], config["knobs"], document["time_us"], document["tflops"],
            document["why"], document,
        )  # fmt: skip
        texts = isinstance(made.source, str) and isinstance(made.family, str | None) and isinstance(made.why, str)
        numbers = isinstance(made.time_us, int | float | None) and isinstance(made.tflops, int | float | None)
        if not (texts and numbers and isinstance(made.knobs, Mapping)):
            raise TypeError("members of an answer have other types than a service gives them")
        return made


class Client(Managing):
    """A client of one service.

    Args:
        url: URL of the service, as in `http://127.0.0.1:8643`.
        token: made by `gemmtune token create`; None if the service requires none.
        seconds: timeout of a request.
        insecure: send the token over plain HTTP beyond this machine, as inside a private network.
        transport: replaces the network in tests.

    Raises:
        GemmtuneError: the URL is malformed, or would expose the token to the network; the token or the timeout is none.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        seconds: float = 10.0,
        insecure: bool = False,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self._service = ServiceClient(
            url, token, seconds=seconds, insecure=insecure, transport=transport, error_of=GemmtuneError
        )

    def best(
        self, m: int, n: int, k: int, dtype: str | None = None, layout: str | None = None, device: str | None = None,
        *, kind: str | None = None, policy: str | None = None, neighbours: str | None = None, **fields: int | str,
    ) -> BestAnswer:  # fmt: skip
        """The best known config for C[M,N] = A·B over K, or for a problem of another kind.

        Args:
            dtype, layout: of the operands; bf16 and nt by default.
            kind: the problem's kind; `gemm` by default.
            policy: the timing policy, as in `burst`; by default the one that decides what is served.
            neighbours: `pdl` if the kernels around it let the next one start early.
            fields: further fields of the kind, as in `batch=8`; `require="measured"` refuses any other answer.

        Raises:
            GemmtuneError: the problem is invalid, or the service can't be reached.
        """
        asked = given(device=device, policy=policy, neighbours=neighbours)
        query = _problem(m, n, k, dtype, layout, kind, fields) | asked
        return self._best_of(self._service.document("GET", "/v1/best", params=query, has="source"))

    def best_many(
        self, problems: Iterable[Mapping[str, int | str]], device: str | None = None, *, policy: str | None = None,
        neighbours: str | None = None,
    ) -> list[BestAnswer]:  # fmt: skip
        """The best known configs for any number of problems, in the same order.

        Args:
            problems: each with `m`, `n`, `k` and, unless the defaults hold, `kind` and the other fields of its kind.
            policy, neighbours: as in `best`.

        Raises:
            GemmtuneError: a problem is invalid, or the service can't be reached.
        """
        said, problems = given(device=device, policy=policy, neighbours=neighbours), _listed(problems)
        answers: dict[int, BestAnswer] = {}
        waiting = list(range(len(problems)))
        while waiting:
            asked, waiting = waiting[:_MOST_PROBLEMS], waiting[_MOST_PROBLEMS:]
            body = {"problems": [problems[place] for place in asked]} | said
            items = self._service.items("POST", "/v1/best:batch", body)
            if len(items) != len(asked):
                raise self._service.foreign()
            answers |= {place: self._best_of(item) for place, item in zip(asked, items, strict=True) if item}
            # Not computed within the service's time limit.
            left = [place for place in asked if place not in answers]
            if len(left) == len(asked):
                detail = f"none of {len(asked)} problems was answered: request fewer at once"
                raise GemmtuneError(0, "no-progress", detail)
            waiting = left + waiting
        return [answers[place] for place in range(len(problems))]

    def devices(self) -> list[dict[str, Any]]:
        """The GPU models that the service knows.

        Raises:
            GemmtuneError: the service can't be reached.
        """
        return self._service.items("GET", "/v1/devices")

    def explain(
        self, m: int, n: int, k: int, knobs: Mapping[str, int | str], dtype: str | None = None,
        layout: str | None = None, *, kind: str | None = None, device: str | None = None, family: str | None = None,
        arch: str | None = None, **fields: int | str,
    ) -> dict[str, Any]:  # fmt: skip
        """Checks a config against the rules: `legal`, `broken`, `nearest`, `derived`.

        Args:
            knobs: those that are left out take their defaults; without any it is the legal config nearest to these.
            dtype, layout, kind, fields: as for `best`.
            device: whose limits apply; the H200's by default.
            family: of the config; by default the one that has these knobs.
            arch: in place of a device, as in `sm_89`.

        Raises:
            ValueError: `knobs` names none, as a config's text.
            GemmtuneError: the problem or the config is malformed.
        """
        problem = _problem(m, n, k, dtype, layout, kind, fields)
        body = {"problem": problem, "knobs": knobs_of(knobs)} | given(device=device, family=family, arch=arch)
        return self._service.document("POST", "/v1/explain", body, has="legal")

    def table(self, device: str, content: str | None = None) -> dict[str, Any] | None:
        """All bests of a device; None if the table's content hash still is `content`.

        Raises:
            GemmtuneError: the service has no best of that device.
        """
        path = f"/v1/tables/{quote(device, safe='')}"
        if not content:
            return self._service.document("GET", path)
        document = self._service.call("GET", path, headers={"If-None-Match": f'"{content}"'})
        # 304 Not Modified has no body.
        if document is not None and not isinstance(document, dict):
            raise self._service.foreign()
        return document

    def table_as(
        self, device: str, format: str, *, min_gain: float | None = None, torch: str | None = None,
        neighbours: Literal["plain", "pdl"] | None = None,
    ) -> bytes:  # fmt: skip
        """A device's table as a file: `csv`, `parquet`, `tunableop`, or `json`.

        Args:
            min_gain: least gain over the library's first choice that is in it; 1.02 by default, in every format.
            torch: PyTorch's version, which `tunableop` needs.
            neighbours: `pdl` for the best among kernels that let the next one start early, where that was measured.

        Raises:
            GemmtuneError: the service has no best of that device, or can't write the format.
        """
        asked = {"format": format, "min_gain": min_gain, "torch": torch, "neighbours": neighbours}
        query = {name: value for name, value in asked.items() if value is not None}
        return self._service.fetch(f"/v1/tables/{quote(device, safe='')}", query)

    def misses(self, device: str | None = None, limit: int = 1_000) -> list[dict[str, Any]]:
        """Questions that had no measured answer, those asked most often first.

        Raises:
            GemmtuneError: the service can't be reached.
        """
        return self._service.items("GET", "/v1/misses", params={"limit": limit} | given(device=device))

    def bests(self, device: str) -> Iterator[dict[str, Any]]:
        """The entries of a device's table, page by page.

        Raises:
            GemmtuneError: the service has no best of that device.
        """
        return self._pages("/v1/bests", {"device": device})

    def measurements(self, **filters: str | int) -> Iterator[dict[str, Any]]:
        """Every measurement, page by page.

        Args:
            filters: `device`, `outcome`, `policy`, `stage`, and a problem by its key (`problem`) or by the fields that
                `best` takes: `m`, `n`, `k`, `dtype`, `layout`, ….

        Raises:
            GemmtuneError: a filter has an invalid value.
        """
        return self._pages("/v1/measurements", filters)

    def _pages(self, path: str, filters: Mapping[str, str | int]) -> Iterator[dict[str, Any]]:
        return self._service.pages(path, filters, PAGE)

    def close(self) -> None:
        """Closes connections; nothing can be asked any more."""
        self._service.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _best_of(self, document: Any) -> BestAnswer:  # noqa: ANN401  (JSON)
        try:
            return BestAnswer.of(document)
        except (KeyError, TypeError) as error:
            raise self._service.foreign() from error


def _problem(
    m: int, n: int, k: int, dtype: str | None, layout: str | None, kind: str | None, fields: Mapping[str, int | str]
) -> dict[str, int | str]:
    """The given fields of a problem; the service knows the defaults."""
    words = {"dtype": dtype, "layout": layout, "kind": kind}
    return {"m": m, "n": n, "k": k} | {name: word for name, word in words.items() if word is not None} | dict(fields)


def _listed(problems: object) -> list[dict[str, Any]]:
    """The problems of a batch.

    Raises:
        GemmtuneError: it is no list of them.
    """
    try:
        return problems_of(problems)
    except ValueError as error:
        raise GemmtuneError(0, "bad-problem", str(error)) from error
