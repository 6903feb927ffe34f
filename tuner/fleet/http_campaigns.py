"""`CampaignClient` over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from tuner.fleet.campaigns.client import PAGE, Change
from tuner.fleet.campaigns.documents import Document
from tuner.fleet.campaigns.records import CampaignRequest, ProblemStatus
from tuner.fleet.service_client import ServiceClient


class HttpCampaigns:
    """Campaigns of a service."""

    def __init__(self, service: ServiceClient) -> None:
        self._service = service

    def create(self, request: CampaignRequest, idempotency_key: str | None) -> Document:
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
        return dict(self._service.call("POST", "/v1/campaigns", _body(request), headers=headers))

    def estimate(self, request: CampaignRequest) -> Document:
        return dict(self._service.call("POST", "/v1/campaigns:estimate", _body(request)))

    def campaigns(self) -> Iterator[Document]:
        return self._service.pages("/v1/campaigns", {}, PAGE)

    def progress(self, campaign_id: int) -> Document:
        return dict(self._service.call("GET", f"/v1/campaigns/{campaign_id}"))

    def summary(self, campaign_id: int) -> Document:
        return dict(self._service.call("GET", f"/v1/campaigns/{campaign_id}/summary"))

    def problems(self, campaign_id: int, status: ProblemStatus | None) -> Iterator[Document]:
        filters = {"status": status.value} if status else {}
        return self._service.pages(f"/v1/campaigns/{campaign_id}/problems", filters, PAGE)

    def change(self, campaign_id: int, change: Change) -> Document:
        return dict(self._service.call("POST", f"/v1/campaigns/{campaign_id}:{change}"))

    def workers(self, gone: bool) -> Iterator[Document]:
        return self._service.pages("/v1/workers", {"gone": "true" if gone else "false"}, PAGE)

    def drain(self, worker_id: int) -> Document:
        return dict(self._service.call("POST", f"/v1/workers/{worker_id}:drain"))


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
