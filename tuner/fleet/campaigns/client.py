"""Campaign clients of `gemmtune campaign` and `gemmtune worker`: on a store in this process, or over HTTP.

Both kinds answer with the JSON documents of the service's endpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Final, Literal

from tuner.evidence import misses, revocations
from tuner.evidence.store import Store
from tuner.fleet.campaigns import results
from tuner.fleet.campaigns.campaigns import Campaigns
from tuner.fleet.campaigns.documents import Document, document
from tuner.fleet.campaigns.estimate import ALL_RECORDED, Unrecorded, estimate
from tuner.fleet.campaigns.records import Campaign, CampaignProblem, CampaignRequest, ProblemStatus, Timing, Worker
from tuner.fleet.campaigns.workers import Workers
from tuner.fleet.service_client import ServiceClient

Change = Literal["pause", "resume", "cancel"]
#: Rows a page.
PAGE: Final = 500
#: A service counts the candidates of up to 200 problems for an estimate, of one caller after the other; `haproxy.cfg`
#: waits as long.
_ESTIMATE_SECONDS: Final = 60.0


class LocalCampaigns:
    """Campaigns and workers of a store, as JSON documents.

    Attributes:
        of_this_machine: whether all workers run here, as with SQLite.
    """

    def __init__(self, store: Store, timing: Timing) -> None:
        self._store, self._campaigns, self._workers = store, Campaigns(store), Workers(store, timing)
        self.of_this_machine = store.embedded

    def create(self, request: CampaignRequest, idempotency_key: str | None) -> Document:
        return document(self._campaigns.create(request, idempotency_key)[0])

    def estimate(self, request: CampaignRequest, unrecorded: Unrecorded = ALL_RECORDED) -> Document:
        """What the campaign would cost; creates nothing."""
        return asdict(estimate(self._store, request, unrecorded=unrecorded))

    def campaigns(self) -> Iterator[Document]:
        return _pages(lambda after: self._campaigns.page(after, PAGE))

    def progress(self, campaign_id: int) -> Document:
        return document(results.progress(self._store, campaign_id))

    def summary(self, campaign_id: int) -> Document:
        return document(results.summary(self._store, campaign_id))

    def problems(self, campaign_id: int, status: ProblemStatus | None) -> Iterator[Document]:
        """A campaign's problems, optionally only those with one status."""
        return _pages(lambda after: results.problems(self._store, campaign_id, after, PAGE, status))

    def change(self, campaign_id: int, change: Change) -> Document:
        """Pauses, resumes or cancels a campaign."""
        changes = {"pause": self._campaigns.pause, "resume": self._campaigns.resume, "cancel": self._campaigns.cancel}
        return document(changes[change](campaign_id))

    def misses(self, device: str) -> list[Document]:
        """Questions about a GPU model that had no measured answer, those asked most often first."""
        found, _ = misses.page(self._store, device)
        return [asdict(miss) | {"problem": miss.problem.document()} for miss in found]

    def workers(self, gone: bool) -> Iterator[Document]:
        """Registered workers; with `gone`, also those that left or were lost."""
        return _pages(lambda after: self._workers.page(after, PAGE, gone))

    def drain(self, worker_id: int) -> Document:
        """Lets a worker finish its round and leave."""
        return document(self._workers.drain(worker_id))

    def revoke(self, worker: str, token: str, since: datetime | None, reason: str) -> Document:
        """Takes what a worker or a token reported out of the running."""
        return document(
            revocations.revoke(self._store, worker=worker, token=token, since=since, reason=reason, whole=True)
        )


class HttpCampaigns:
    """Campaigns and workers of a service, over HTTP; see `LocalCampaigns`."""

    of_this_machine = False

    def __init__(self, service: ServiceClient) -> None:
        self._service = service

    def create(self, request: CampaignRequest, idempotency_key: str | None) -> Document:
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key is not None else {}
        return self._service.document("POST", "/v1/campaigns", _body(request), headers=headers, has="id")

    def estimate(self, request: CampaignRequest, _: Unrecorded = ALL_RECORDED) -> Document:
        path, body = "/v1/campaigns:estimate", _body(request)
        return self._service.document("POST", path, body, seconds=_ESTIMATE_SECONDS, has="untunable")

    def campaigns(self) -> Iterator[Document]:
        return self._service.pages("/v1/campaigns", {}, PAGE)

    def progress(self, campaign_id: int) -> Document:
        return self._service.document("GET", f"/v1/campaigns/{campaign_id}", has="campaign")

    def summary(self, campaign_id: int) -> Document:
        return self._service.document("GET", f"/v1/campaigns/{campaign_id}/summary", has="progress")

    def problems(self, campaign_id: int, status: ProblemStatus | None) -> Iterator[Document]:
        filters = {"status": status.value} if status else {}
        return self._service.pages(f"/v1/campaigns/{campaign_id}/problems", filters, PAGE)

    def change(self, campaign_id: int, change: Change) -> Document:
        return self._service.document("POST", f"/v1/campaigns/{campaign_id}:{change}", has="id")

    def misses(self, device: str) -> list[Document]:
        query = {"device": device, "limit": misses.MOST_MISSES}
        return self._service.items("GET", "/v1/misses", params=query)

    def workers(self, gone: bool) -> Iterator[Document]:
        return self._service.pages("/v1/workers", {"gone": "true" if gone else "false"}, PAGE)

    def drain(self, worker_id: int) -> Document:
        return self._service.document("POST", f"/v1/workers/{worker_id}:drain", has="status")

    def revoke(self, worker: str, token: str, since: datetime | None, reason: str) -> Document:
        named = {"worker": worker} if worker else {"token": token}
        body = named | {"since": since.isoformat() if since else None, "reason": reason}
        return self._service.document("POST", "/v1/workers:revoke", body, has="measurements")


CampaignClient = LocalCampaigns | HttpCampaigns


def _pages(page_after: Callable[[int], Sequence[Campaign | CampaignProblem | Worker]]) -> Iterator[Document]:
    after = 0
    while page := page_after(after):
        yield from map(document, page)
        after = page[-1].id


def _body(request: CampaignRequest) -> Document:
    counts = [{"count": count} if count > 1 else {} for count in request.counts or (1,) * len(request.problems)]
    return {
        "name": request.name,
        "problems": [
            problem.fields() | {"kind": problem.kind} | count
            for problem, count in zip(request.problems, counts, strict=True)
        ],
        "devices": [{"name": name, "kind": kind} for name, kind in request.devices],
        "budget": asdict(request.budget),
        "priority": request.priority,
    }
