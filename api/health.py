"""GET / and /healthz."""

from __future__ import annotations

from fastapi import APIRouter, Request
from pydantic import BaseModel

from api.problems import responses
from tuner.store.store import Store

router = APIRouter(tags=["service"])


class Health(BaseModel):
    """The store answers."""

    status: str
    schema_revision: str
    rows: dict[str, int]


class Index(BaseModel):
    """Where things are."""

    openapi: str
    best: str
    measurements: str
    explain: str
    tables: list[str]
    health: str


@router.get("/healthz", operation_id="getHealth", responses=responses())
def get_health(request: Request) -> Health:
    """200 when the store can be read; 503 when it can't."""
    store: Store = request.app.state.store
    return Health(status="ok", schema_revision=store.revision(), rows=store.counts())


@router.get("/", operation_id="getIndex", responses=responses())
def get_index(request: Request) -> Index:
    """What there is."""
    store: Store = request.app.state.store
    return Index(
        openapi="/openapi.json",
        best="/v1/best?m=4096&n=4096&k=4096&dtype=bf16",
        measurements="/v1/measurements",
        explain="/v1/explain",
        tables=[f"/v1/tables/{name}" for name in sorted({name for name, _ in store.devices()})],
        health="/healthz",
    )
