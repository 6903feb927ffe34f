"""Keyset pagination: pages, the link to the next one, and cursors.

A cursor is an opaque position in a list, bound to the filters of the query that produced it, and to the store whose
rows have these ids.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Protocol, TypeAlias, TypeVar

from fastapi import Request, Response
from pydantic import BaseModel, ConfigDict, Field

from api.http_errors import HttpError
from api.schemas import DIGITS, Absent, Strict
from tuner.evidence.store import Store
from tuner.views import versions


class HasId(Protocol):
    """A row with an id, which a cursor can point behind."""

    @property
    def id(self) -> int:
        """The row's id, ascending within the list."""
        ...


Item = TypeVar("Item")
Position = TypeVar("Position", int, str)
Row = TypeVar("Row", bound=HasId)


class Page(BaseModel, Generic[Item]):
    """A page of a list."""

    items: list[Item]
    next: str | None = Field(description="cursor of the next page; null on the last")


class Cursor(BaseModel, Generic[Position]):
    """What a cursor encodes: the position behind one item, the query's filters, and the number of the store.

    Attributes:
        store: 0 where the position is no row's id.
    """

    model_config = ConfigDict(strict=True)

    after: Position
    filters: dict[str, Any]
    store: int = 0


#: PostgreSQL refuses to compare a larger number with a row's.
ById: TypeAlias = Cursor[Annotated[int, Field(ge=0, lt=2**31)]]
#: For lists that are sorted by a string.
ByKey: TypeAlias = Cursor[str]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page begins.

    Attributes:
        after: id of the last row before it; 0 for the first page.
        filters: of the query.
        store: number of the store, as of before its rows were read.
    """

    after: int
    filters: Mapping[str, object]
    store: int


def encode(after: int | str, filters: Mapping[str, object], store: int = 0) -> str:
    """A cursor that points behind one item, given by its id and store, or by the string that the list is sorted by."""
    content = Cursor[Any](after=after, filters=dict(filters), store=store)
    return base64.urlsafe_b64encode(content.model_dump_json().encode()).decode().rstrip("=")


def decode(kind: type[Cursor[Position]], cursor: str, filters: Mapping[str, object]) -> Cursor[Position]:
    """What a cursor encodes.

    Raises:
        HttpError: 400, the cursor is malformed, or belongs to a query with other filters.
    """
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        found = kind.model_validate_json(text)
    except ValueError:
        detail = f"cursor {cursor[:80]!r} is malformed: leave it out for the first page"
        raise HttpError(400, "bad-cursor", detail) from None
    if found.filters != dict(filters):
        detail = "the cursor belongs to a query with other filters: leave it out for the first page"
        raise HttpError(400, "bad-cursor", detail)
    return found


class PageQuery(Strict):
    """Selects a page."""

    limit: Annotated[int, Field(ge=1, le=1000), DIGITS] = 100
    cursor: Annotated[str, Field(max_length=2000)] | Absent = None

    def place(self, store: Store, filters: Mapping[str, object]) -> Place:
        """Where the page begins in a list of a store's rows.

        Raises:
            HttpError: 400, the cursor is malformed, or belongs to another query or another store.
        """
        found = decode(ById, self.cursor, filters) if self.cursor else None
        with store.transaction() as session:
            if found and not versions.is_of_store(session, found.store):
                detail = "the cursor belongs to another store, as before a restore: leave it out for the first page"
                raise HttpError(400, "bad-cursor", detail)
            return Place(found.after if found else 0, filters, versions.of_store(session))


def page_of(
    request: Request, response: Response, rows: Sequence[Row], limit: int, place: Place
) -> tuple[Sequence[Row], str | None]:
    """The rows of this page and the cursor of the next, which is also set as the `Link` header.

    Args:
        rows: up to `limit` + 1 rows; the extra one shows that there is a next page.
        place: where they begin.
    """
    if len(rows) <= limit:
        return rows, None
    following = encode(rows[limit - 1].id, place.filters, place.store)
    response.headers.update(next_link(request, following))
    return rows[:limit], following


def next_link(request: Request, cursor: str) -> dict[str, str]:
    """The `Link` header of a page with a successor (RFC 8288)."""
    url = request.url.include_query_params(cursor=cursor)
    return {"Link": f'<{url.path}?{url.query}>; rel="next"'}
