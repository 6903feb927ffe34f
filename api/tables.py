"""GET /v1/tables and /v1/bests: all bests of a device, as one document or page by page."""

from __future__ import annotations

import hashlib
import threading
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

import orjson
from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from api import pages
from api.auth import require
from api.device_bests import CachedBest
from api.devices import DevicePath, bests_of
from api.encoding import NOT_MODIFIED, accepted, matches, streamed
from api.http_errors import responses
from api.schemas import DeviceName, EvidenceOut
from api.snapshot import MOST_RENDERED, Snapshot
from api.table_formats import TableFormats, TableQuery
from api.thread_routes import ThreadRoute
from api.views.kept import ViewsDependency
from tuner.answering.answers import policy_of
from tuner.evidence import changes, revocations
from tuner.evidence.store import Store
from tuner.tables.entries import canonical
from tuner.tables.exporters import EXPORTERS, exporter_named
from tuner.tables.library import library_table
from tuner.tables.tables import SCHEMA, table

router = APIRouter(tags=["tables"], dependencies=[Depends(require("read"))], route_class=ThreadRoute)

_AT_ONCE: Final = 256
_JSON: Final = "application/json"
#: JSON is documented by its schema.
_OTHER_FORMATS: Final = {
    exporter.MEDIA_TYPE.partition(";")[0]: {"schema": {"type": "string", "format": "binary"}}
    for exporter in EXPORTERS.values()
    if exporter.MEDIA_TYPE != _JSON
}


@dataclass(frozen=True, slots=True)
class TableView:
    """A device's table at one version of the snapshot.

    Attributes:
        version: of the device's bests (`Snapshot.version_of`).
        keys: of the problems, sorted.
        bests: of these problems; None in a store of more than fit in memory, whose bests are read again as they are
            sent. One that changes meanwhile then contradicts `content`, which readers check.
        content: hash of everything in the table except itself.
    """

    snapshot: Snapshot
    device: str
    version: object
    keys: list[str]
    bests: list[CachedBest] | None
    content: str

    def parts(self) -> Iterator[bytes]:
        """The part of the table's canonical JSON that follows `content`, including the closing brace."""
        yield b'"device":' + canonical(self.device) + b',"entries":['
        comma = b""
        for first in range(0, len(self.keys), _AT_ONCE):
            # Those that this version can't read are left out.
            if entries := self._entries(slice(first, first + _AT_ONCE)):
                yield comma + b",".join(entries)
                comma = b","
        yield b'],"schema":' + canonical(SCHEMA) + b"}"

    def _entries(self, places: slice) -> list[bytes]:
        if self.bests is None:
            return self.snapshot.entries(self.device, self.keys[places])
        return [best.entry for best in self.bests[places]]


class TableViews:
    """Caches the latest view of each device; a view is built on first use."""

    def __init__(self) -> None:
        self._views: dict[str, TableView] = {}
        self._lock = threading.Lock()

    def of(self, snapshot: Snapshot, device: str) -> TableView:
        """The current view of a device.

        Raises:
            HttpError: 404, the snapshot has no best of it.
        """
        known = bests_of(snapshot, device)
        with self._lock:
            view, version = self._views.get(device), snapshot.version_of(device)
            if view is None or view.version != version:
                keys, bests = known.keys[:], None
                if len(snapshot) <= MOST_RENDERED:
                    found = snapshot.load(device, keys)
                    bests = [held for key in keys if (held := found.get(key)) and held.legal]
                view = TableView(snapshot, device, version, keys, bests, "")
                digest = hashlib.sha256(b"{")
                for part in view.parts():
                    digest.update(part)
                view = self._views[device] = replace(view, content=digest.hexdigest())
            return view


class TableOut(BaseModel):
    """All bests of a device."""

    content: str = Field(description="SHA-256 of everything here except itself; also the ETag")
    device: str
    entries: list[EvidenceOut]
    schema_: str = Field(alias="schema")


class BestsQuery(pages.PageQuery):
    """Selects a page of a device's bests."""

    device: DeviceName


class BestsPage(pages.Page[EvidenceOut]):
    """A page of bests, sorted by problem key."""


@router.get(
    "/v1/tables/{device}", operation_id="getTable", response_model=TableOut,
    responses={**responses(404), **NOT_MODIFIED, 200: {"description": "the table", "content": _OTHER_FORMATS}},
)  # fmt: skip
async def get_table(
    request: Request,
    device: DevicePath,
    query: Annotated[TableQuery, Query()],
    views: ViewsDependency,
    if_none_match: Annotated[str | None, Header(max_length=4000)] = None,
) -> Response:
    """A device's table in one of the formats of `gemmtune export`, with an ETag for each.

    Without parameters it has the bytes of `--all`, and its ETag is the content hash: strong, or weak where the answer
    is compressed. Every other answer is guarded by `min_gain`.
    """
    tables: TableViews = request.app.state.table_views
    view = await views.run(lambda: tables.of(request.app.state.answer_service.snapshot, device))
    if not query.whole:
        formats: TableFormats = request.app.state.table_formats
        policy = policy_of(None, query.neighbours)

        def read() -> dict[str, Any]:
            if exporter_named(query.format).OF_LIBRARY:
                return library_table(views.store, device)
            if policy is not None:
                return table(views.store, device, policy)
            found: dict[str, Any] = orjson.loads(b"".join(rendered(view)))
            return found

        def made() -> Response:
            return formats.of(device, _version(view, query, views.store), query, read).response(request)

        # Of a large table each takes seconds and a multiple of its size.
        return await views.run_slow(request, made)
    encoding = accepted(request.headers.get("accept-encoding", ""))
    etag = f'"{view.content}"' if encoding == "identity" else f'W/"{view.content}"'
    headers = {
        "ETag": etag, "Cache-Control": "private, max-age=0, must-revalidate", "Vary": "Accept-Encoding, Authorization",
    }  # fmt: skip
    if if_none_match and matches(if_none_match, etag):
        return Response(status_code=304, headers=headers)
    if encoding != "identity":
        headers["Content-Encoding"] = encoding
    return StreamingResponse(streamed(rendered(view), encoding), media_type=_JSON, headers=headers)


def _version(view: TableView, query: TableQuery, store: Store) -> object:
    """Changes whenever a format's table does. The snapshot has served bests alone: it changes with no other."""
    if exporter_named(query.format).OF_LIBRARY:
        # What the library measured beside a best may be revoked without it, or before it is replaced.
        return view.content, revocations.newest(store), store.changed().get(changes.RESTORED)
    if policy_of(None, query.neighbours) is not None:
        return view.content, changes.version(store.changed(), "best")
    return view.content


@router.get("/v1/bests", operation_id="listBests", response_model=BestsPage, responses=responses(404))
def list_bests(request: Request, query: Annotated[BestsQuery, Query()]) -> Response:
    """The entries of a device's table, page by page. A cursor stays valid while bests are added or replaced."""
    snapshot: Snapshot = request.app.state.answer_service.snapshot
    keys = bests_of(snapshot, query.device).keys
    filters = {"device": query.device}
    first = bisect_right(keys, pages.decode(pages.ByKey, query.cursor, filters)) if query.cursor else 0
    shown = keys[first : first + query.limit + 1]
    following = pages.encode(shown[query.limit - 1], filters) if len(shown) > query.limit else None
    entries = b",".join(snapshot.entries(query.device, shown[: query.limit]))
    text = b'{"items":[' + entries + b'],"next":' + canonical(following) + b"}"
    return Response(text, media_type=_JSON, headers=pages.next_link(request, following) if following else None)


def rendered(view: TableView) -> Iterator[bytes]:
    """A table as canonical JSON, in chunks: a large table exceeds the service's memory."""
    yield b'{"content":' + canonical(view.content) + b","
    yield from view.parts()
    yield b"\n"
