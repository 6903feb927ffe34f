"""Keyset pagination: the page behind a cursor, and the link to the next one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Protocol, TypeVar

from fastapi import Request, Response
from pydantic import Field

from api import cursors
from api.http_errors import next_link
from api.schemas import Absent, Strict


class HasId(Protocol):
    """A row with an id, which a cursor can point behind."""

    @property
    def id(self) -> int:
        """The row's id, ascending within the list."""
        ...


Row = TypeVar("Row", bound=HasId)


class PageQuery(Strict):
    """Selects a page."""

    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    cursor: Annotated[str, Field(max_length=2000)] | Absent = None

    def after(self, filters: Mapping[str, object]) -> int:
        """The id behind which the page begins.

        Raises:
            HttpError: 400, the cursor is malformed or belongs to another query.
        """
        return cursors.decode(self.cursor, filters) if self.cursor else 0


def page_of(
    request: Request, response: Response, rows: Sequence[Row], limit: int, filters: Mapping[str, object]
) -> tuple[Sequence[Row], str | None]:
    """The rows of this page and the cursor of the next, which is also set as the `Link` header.

    Args:
        rows: up to `limit` + 1 rows; the extra one shows that there is a next page.
    """
    if len(rows) <= limit:
        return rows, None
    following = cursors.encode(rows[limit - 1].id, filters)
    response.headers.update(next_link(request, following))
    return rows[:limit], following
