"""GET /v1/tables/{device}: every best of a device, cacheable."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Request, Response
from fastapi.responses import JSONResponse

from api.auth import require
from api.problems import responses
from tuner.store.store import Store
from tuner.tables import table, table_bytes

router = APIRouter(tags=["tables"], dependencies=[Depends(require("read"))])

_NOT_MODIFIED: dict[int | str, dict[str, object]] = {304: {"description": "the client has this content already"}}


@router.get(
    "/v1/tables/{device}",
    operation_id="getTable",
    response_class=JSONResponse,
    responses={**responses(404), **_NOT_MODIFIED},
)
def get_table(
    request: Request, device: str, if_none_match: Annotated[str | None, Header(max_length=4000)] = None
) -> Response:
    """The table that `gemmtune export --format json` writes, byte for byte, with a strong ETag."""
    store: Store = request.app.state.store
    document = table(store, device)
    etag = f'"{document["content"]}"'
    headers = {"ETag": etag, "Cache-Control": "private, max-age=0, must-revalidate"}
    if if_none_match and matches(if_none_match, etag):
        return Response(status_code=304, headers=headers)
    return Response(table_bytes(document), media_type="application/json", headers=headers)


def matches(if_none_match: str, etag: str) -> bool:
    """RFC 9110 §13.1.2: weak comparison with each of a list, or `*`."""
    given = [part.strip().removeprefix("W/") for part in if_none_match.split(",")]
    return "*" in given or etag in given
