"""Pages: the part of a list that a keyset cursor names, and the link to the next one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Protocol, TypeVar

from fastapi import Request, Response
from pydantic import Field

from api import cursors
from api.schemas import Absent, Strict


class Numbered(Protocol):
    """What a cursor can stand behind."""

    @property
    def id(self) -> int:
        """Its place."""
        ...


Row = TypeVar("Row", bound=Numbered)


class PageQuery(Strict):
    """Which page."""

    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    cursor: Annotated[str, Field(max_length=2000)] | Absent = None

    def after(self, filters: Mapping[str, object]) -> int:
        """The place behind which the page begins.

        Raises:
            HttpProblem: 400, the cursor is damaged or of another query.
        """
        return cursors.decode(self.cursor, filters) if self.cursor else 0


def page_of(
    request: Request, response: Response, rows: Sequence[Row], limit: int, filters: Mapping[str, object]
) -> tuple[Sequence[Row], str | None]:
    """The rows of this page and the cursor of the next, which is also told as a Link.

    Args:
        rows: one more than `limit`, where there are as many.
    """
    if len(rows) <= limit:
        return rows, None
    following = cursors.encode(rows[limit - 1].id, filters)
    url = request.url.include_query_params(cursor=following)
    response.headers["Link"] = f'<{url.path}?{url.query}>; rel="next"'
    return rows[:limit], following
