"""What the client changes and watches: campaigns, bests, workers, builds, and the service itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from gemmtune.reading import PAGE, Document, Reading, given, listed, mapped, problem_of, problems_of


class Managing(Reading):
    """Questions and orders whose documents docs/api.md describes; orders need a token of the scope that it names."""

    def create_campaign(
        self, name: str, devices: Sequence[str | Mapping[str, Any]], *, problems: Sequence[Mapping[str, Any]] = (),
        ladders: Sequence[str] = (), budget: Mapping[str, Any] | None = None, priority: int = 0,
        idempotency_key: str | None = None,
    ) -> Document:  # fmt: skip
        """Creates a campaign.

        Args:
            devices: names of GPU models, or objects with `name` and `kind`.
            problems: each with `m`, `n`, `k`, and optionally other fields of its kind and `count`.
            ladders: as in `m=1..8192:x2 n=4096 k=4096`.
            budget: `candidates`, `rounds` and the other members that the service knows.
            idempotency_key: repeating it creates no second campaign.

        Raises:
            ValueError: `devices`, `problems` or `ladders` is no list, or a problem or `budget` names no fields.
            GemmtuneError: the campaign is invalid, or the service can't be reached.
        """
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key is not None else None
        body = _campaign(name, devices, problems, ladders, budget, priority)
        return self._service.document("POST", "/v1/campaigns", body, headers=headers)

    def estimate_campaign(
        self, name: str, devices: Sequence[str | Mapping[str, Any]], *, problems: Sequence[Mapping[str, Any]] = (),
        ladders: Sequence[str] = (), budget: Mapping[str, Any] | None = None, priority: int = 0,
    ) -> Document:  # fmt: skip
        """What a campaign would take; nothing is created. Takes and raises what `create_campaign` does."""
        body = _campaign(name, devices, problems, ladders, budget, priority)
        return self._service.document("POST", "/v1/campaigns:estimate", body)

    def campaigns(self, **filters: str) -> Iterator[Document]:
        """Campaigns; `filters` are `status` and `order`."""
        return self._service.pages("/v1/campaigns", filters, PAGE)

    def campaign(self, campaign_id: int) -> Document:
        """One campaign."""
        return self._ask(f"/v1/campaigns/{campaign_id}")

    def campaign_summary(self, campaign_id: int) -> Document:
        """What a campaign has found."""
        return self._ask(f"/v1/campaigns/{campaign_id}/summary")

    def campaign_problems(self, campaign_id: int, **filters: str) -> Iterator[Document]:
        """A campaign's problems with their states; `filters` is `status`."""
        return self._service.pages(f"/v1/campaigns/{campaign_id}/problems", filters, PAGE)

    def watch_campaign(
        self, campaign_id: int, last_event_id: str | None = None, **filters: float
    ) -> Iterator[Document]:
        """A campaign's progress, as `events`; `filters` is `seconds`."""
        return self._events(f"/v1/campaigns/{campaign_id}/events", last_event_id, filters)

    def pause_campaign(self, campaign_id: int) -> Document:
        """Starts no further round of it."""
        return self._order(f"/v1/campaigns/{campaign_id}:pause")

    def resume_campaign(self, campaign_id: int) -> Document:
        """Goes on with a campaign that was paused."""
        return self._order(f"/v1/campaigns/{campaign_id}:resume")

    def cancel_campaign(self, campaign_id: int) -> Document:
        """Ends a campaign; what it measured stays."""
        return self._order(f"/v1/campaigns/{campaign_id}:cancel")

    def best_history(
        self, m: int, n: int, k: int, *, device: str | None = None, **fields: int | str
    ) -> Iterator[Document]:
        """Changes of a problem's bests, oldest first."""
        query = {"m": m, "n": n, "k": k, **fields} | given(device=device)
        return self._service.pages("/v1/best/history", query, PAGE)

    def roll_back_best(self, problem: Mapping[str, int | str], device: str, change: int) -> Document:
        """Makes an earlier best the best again.

        Args:
            problem: its fields.
            change: id in `best_history`.

        Raises:
            ValueError: `problem` names no fields.
        """
        body = {"problem": problem_of(problem), "device": device, "change": change}
        return self._order("/v1/best:rollback", body)

    def importance(self, m: int, n: int, k: int, *, device: str | None = None, **fields: int | str) -> Document:
        """How much each knob matters for a problem, from its measurements."""
        return self._ask("/v1/importance", m=m, n=n, k=k, device=device, **fields)

    def device(self, name: str) -> Document:
        """One GPU model."""
        return self._ask(f"/v1/devices/{quote(name, safe='')}")

    def workers(self, gone: bool = False) -> Iterator[Document]:
        """Workers, with those that are gone or without."""
        return self._service.pages("/v1/workers", {"gone": "true" if gone else "false"}, PAGE)

    def drain_worker(self, worker_id: int) -> Document:
        """Gives a worker no further round."""
        return self._order(f"/v1/workers/{worker_id}:drain")

    def revoke_reports(
        self, *, worker: str = "", token: str = "", since: str | None = None, reason: str = ""
    ) -> Document:
        """Believes reports no longer.

        Args:
            worker, token: the name of the one whose reports they are.
            since: only what was stored then or later, as in `2026-11-25T00:00:00Z`.
        """
        body = {"worker": worker, "token": token, "since": since, "reason": reason}
        return self._order("/v1/workers:revoke", body)

    def builds(self, **filters: str) -> Iterator[Document]:
        """Builds that workers share; `filters` is `arch`."""
        return self._service.pages("/v1/builds", filters, PAGE)

    def build(self, digest: str) -> Document:
        """One build, without its program."""
        return self._ask(f"/v1/builds/{quote(digest, safe='')}")

    def build_program(self, digest: str) -> Document:
        """A build's program."""
        return self._ask(f"/v1/builds/{quote(digest, safe='')}/cubin")

    def remove_build(self, digest: str) -> None:
        """Deletes a build."""
        self._service.call("DELETE", f"/v1/builds/{quote(digest, safe='')}")

    def health(self) -> Document:
        """Whether the service runs."""
        return self._ask("/healthz")

    def readiness(self) -> Document:
        """Whether the service answers questions."""
        return self._ask("/readyz")

    def metrics(self) -> str:
        """Metrics in Prometheus' text format."""
        try:
            return self._service.fetch("/metrics", {}).decode()
        except UnicodeDecodeError as error:
            raise self._service.foreign() from error

    def _order(self, path: str, body: object = None) -> Document:
        return self._service.document("POST", path, body)


def _campaign(
    name: str, devices: Sequence[str | Mapping[str, Any]], problems: Sequence[Mapping[str, Any]],
    ladders: Sequence[str], budget: Mapping[str, Any] | None, priority: int,
) -> Document:  # fmt: skip
    for argument, texts in (("devices", devices), ("ladders", ladders)):
        if isinstance(texts, str):
            raise ValueError(f"{argument} = {texts!r} is one text: give a list, as in [{texts!r}]")
    named = [
        {"name": each} if isinstance(each, str) else mapped(f"devices[{place}]", each, '{"name": "NVIDIA H200"}')
        for place, each in enumerate(listed("devices", devices, "'NVIDIA H200'"))
    ]
    body: Document = {"name": name, "devices": named, "problems": problems_of(problems), "priority": priority,
                      "ladders": listed("ladders", ladders, "'m=1..8192:x2 n=4096 k=4096'")}  # fmt: skip
    return body | ({"budget": mapped("budget", budget, '{"candidates": 96}')} if budget else {})
