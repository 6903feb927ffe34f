"""Campaign client: what `gemmtune campaign` and `gemmtune worker` ask, of a store in this process or over HTTP.

Both kinds answer with the JSON documents of the service's endpoints. The HTTP one is `tuner.fleet.http_campaigns`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Final, Literal, Protocol, TypeVar

from tuner.evidence.store import Store
from tuner.fleet.campaigns import results
from tuner.fleet.campaigns.campaigns import Campaigns
from tuner.fleet.campaigns.documents import Document, document
from tuner.fleet.campaigns.estimate import estimate
from tuner.fleet.campaigns.records import Campaign, CampaignProblem, CampaignRequest, ProblemStatus, Timing, Worker
from tuner.fleet.campaigns.workers import Workers

Change = Literal["pause", "resume", "cancel"]
#: Rows a page.
PAGE: Final = 500
Numbered = TypeVar("Numbered", Campaign, CampaignProblem, Worker)


class CampaignClient(Protocol):
    """Campaigns and workers as JSON documents."""

    def create(self, request: CampaignRequest, idempotency_key: str | None) -> Document:
        """Creates a campaign."""
        ...

    def estimate(self, request: CampaignRequest) -> Document:
        """What the campaign would cost; creates nothing."""
        ...

    def campaigns(self) -> Iterator[Document]:
        """All campaigns, oldest first."""
        ...

    def progress(self, campaign_id: int) -> Document:
        """How far a campaign has come."""
        ...

    def summary(self, campaign_id: int) -> Document:
        """What a campaign achieved."""
        ...

    def problems(self, campaign_id: int, status: ProblemStatus | None) -> Iterator[Document]:
        """A campaign's problems, optionally only those with one status."""
        ...

    def change(self, campaign_id: int, change: Change) -> Document:
        """Pauses, resumes or cancels a campaign."""
        ...

    def workers(self, gone: bool) -> Iterator[Document]:
        """Registered workers; with `gone`, also those that left or were lost."""
        ...

    def drain(self, worker_id: int) -> Document:
        """Lets a worker finish its round and leave."""
        ...


class LocalCampaigns:
    """`CampaignClient` on a store."""

    def __init__(self, store: Store, timing: Timing) -> None:
        self._store, self._campaigns, self._workers = store, Campaigns(store, timing), Workers(store, timing)

    def create(self, request: CampaignRequest, idempotency_key: str | None) -> Document:
        return document(self._campaigns.create(request, idempotency_key)[0])

    def estimate(self, request: CampaignRequest) -> Document:
        return asdict(estimate(self._store, request))

    def campaigns(self) -> Iterator[Document]:
        return map(document, _pages(lambda after: self._campaigns.page(after, PAGE)))

    def progress(self, campaign_id: int) -> Document:
        return document(results.progress(self._store, campaign_id))

    def summary(self, campaign_id: int) -> Document:
        return document(results.summary(self._store, campaign_id))

    def problems(self, campaign_id: int, status: ProblemStatus | None) -> Iterator[Document]:
        found = _pages(lambda after: results.problems(self._store, campaign_id, after, PAGE, status))
        return map(document, found)

    def change(self, campaign_id: int, change: Change) -> Document:
        changes = {"pause": self._campaigns.pause, "resume": self._campaigns.resume, "cancel": self._campaigns.cancel}
        return document(changes[change](campaign_id))

    def workers(self, gone: bool) -> Iterator[Document]:
        return map(document, _pages(lambda after: self._workers.page(after, PAGE, gone)))

    def drain(self, worker_id: int) -> Document:
        return document(self._workers.drain(worker_id))


def _pages(page_after: Callable[[int], Sequence[Numbered]]) -> Iterator[Numbered]:
    after = 0
    while page := page_after(after):
        yield from page
        after = page[-1].id
