"""Office: where campaigns are made and asked about, on a store or at a service; documents in either case."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final, Literal, Protocol

from tuner.evidence.store import Store
from tuner.fleet.agent.service import Service
from tuner.fleet.campaigns import documents, results
from tuner.fleet.campaigns.campaigns import Campaigns
from tuner.fleet.campaigns.documents import Document
from tuner.fleet.campaigns.estimate import estimate
from tuner.fleet.campaigns.records import CampaignRequest, ProblemStatus, Timing
from tuner.fleet.campaigns.workers import Workers

Change = Literal["pause", "resume", "cancel"]
_PAGE: Final = 500


class Office(Protocol):
    """Everything that `gemmtune campaign` and `gemmtune worker` ask, as the JSON of the service's endpoints."""

    def create(self, request: CampaignRequest, idempotency_key: str | None) -> Document:
        """Makes a campaign."""
        ...

    def estimate(self, request: CampaignRequest) -> Document:
        """What it would cost."""
        ...

    def campaigns(self) -> Iterator[Document]:
        """All campaigns, oldest first."""
        ...

    def progress(self, campaign_id: int) -> Document:
        """Where one stands."""
        ...

    def summary(self, campaign_id: int) -> Document:
        """What one came to."""
        ...

    def problems(self, campaign_id: int, status: ProblemStatus | None) -> Iterator[Document]:
        """Its problems, or those of one status."""
        ...

    def change(self, campaign_id: int, change: Change) -> Document:
        """Pauses, resumes or cancels it."""
        ...

    def workers(self, gone: bool) -> Iterator[Document]:
        """Who is there."""
        ...

    def drain(self, worker_id: int) -> Document:
        """Lets a worker finish and leave."""
        ...


class LocalOffice:
    """On a store."""

    def __init__(self, store: Store, timing: Timing) -> None:
        self._store, self._campaigns, self._workers = store, Campaigns(store, timing), Workers(store, timing)

    def create(self, request: CampaignRequest, idempotency_key: str | None) -> Document:
        """See `Office`."""
        return documents.campaign(self._campaigns.create(request, idempotency_key)[0])

    def estimate(self, request: CampaignRequest) -> Document:
        """See `Office`."""
        return asdict(estimate(self._store, request))

    def campaigns(self) -> Iterator[Document]:
        """See `Office`."""
        after = 0
        while page := self._campaigns.page(after, _PAGE):
            yield from map(documents.campaign, page)
            after = page[-1].id

    def progress(self, campaign_id: int) -> Document:
        """See `Office`."""
        return documents.progress(results.progress(self._store, campaign_id))

    def summary(self, campaign_id: int) -> Document:
        """See `Office`."""
        return documents.summary(results.summary(self._store, campaign_id))

    def problems(self, campaign_id: int, status: ProblemStatus | None) -> Iterator[Document]:
        """See `Office`."""
        after = 0
        while page := results.problems(self._store, campaign_id, after, _PAGE, status):
            yield from map(documents.campaign_problem, page)
            after = page[-1].id

    def change(self, campaign_id: int, change: Change) -> Document:
        """See `Office`."""
        changes = {"pause": self._campaigns.pause, "resume": self._campaigns.resume, "cancel": self._campaigns.cancel}
        return documents.campaign(changes[change](campaign_id))

    def workers(self, gone: bool) -> Iterator[Document]:
        """See `Office`."""
        after = 0
        while page := self._workers.page(after, _PAGE, gone):
            yield from map(documents.worker, page)
            after = page[-1].id

    def drain(self, worker_id: int) -> Document:
        """See `Office`."""
        return documents.worker(self._workers.drain(worker_id))


class HttpOffice:
    """At a service."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def create(self, request: CampaignRequest, idempotency_key: str | None) -> Document:
        """See `Office`."""
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
        return dict(self._service.call("POST", "/v1/campaigns", _body(request), headers=headers))

    def estimate(self, request: CampaignRequest) -> Document:
        """See `Office`."""
        return dict(self._service.call("POST", "/v1/campaigns:estimate", _body(request)))

    def campaigns(self) -> Iterator[Document]:
        """See `Office`."""
        return self._pages("/v1/campaigns")

    def progress(self, campaign_id: int) -> Document:
        """See `Office`."""
        return dict(self._service.call("GET", f"/v1/campaigns/{campaign_id}"))

    def summary(self, campaign_id: int) -> Document:
        """See `Office`."""
        return dict(self._service.call("GET", f"/v1/campaigns/{campaign_id}/summary"))

    def problems(self, campaign_id: int, status: ProblemStatus | None) -> Iterator[Document]:
        """See `Office`."""
        return self._pages(f"/v1/campaigns/{campaign_id}/problems", {"status": status.value} if status else {})

    def change(self, campaign_id: int, change: Change) -> Document:
        """See `Office`."""
        return dict(self._service.call("POST", f"/v1/campaigns/{campaign_id}:{change}"))

    def workers(self, gone: bool) -> Iterator[Document]:
        """See `Office`."""
        return self._pages("/v1/workers", {"gone": "true" if gone else "false"})

    def drain(self, worker_id: int) -> Document:
        """See `Office`."""
        return dict(self._service.call("POST", f"/v1/workers/{worker_id}:drain"))

    def _pages(self, path: str, params: dict[str, Any] | None = None) -> Iterator[Document]:
        cursor: str | None = None
        while True:
            more = {"cursor": cursor} if cursor else {}
            page = self._service.call("GET", path, params={"limit": _PAGE} | (params or {}) | more)
            yield from page["items"]
            cursor = page["next"]
            if cursor is None:
                return


def _body(request: CampaignRequest) -> Document:
    fields = ("m", "n", "k", "layout", "batch", "epilogue")
    return {
        "name": request.name,
        "problems": [
            {name: getattr(problem, name) for name in fields} | {"dtype": problem.dtype} for problem in request.problems
        ],
        "devices": [{"name": name, "kind": kind} for name, kind in request.devices],
        "budget": asdict(request.budget),
        "priority": request.priority,
    }
