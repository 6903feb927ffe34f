"""Cursors: an opaque position in a list, bound to the filters of the query that produced it."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Any

from api.http_errors import HttpError


def encode(after: int | Sequence[str], filters: Mapping[str, object]) -> str:
    """A cursor that points behind one item, given by its id or by the strings that the list is sorted by."""
    position = after if isinstance(after, int) else list(after)
    text = json.dumps({"after": position, "filters": filters}, sort_keys=True, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode(cursor: str, filters: Mapping[str, object]) -> int:
    """The id in a cursor.

    Raises:
        HttpError: 400, the cursor is malformed, or belongs to a query with other filters.
    """
    after = _after(cursor, filters)
    if isinstance(after, bool) or not isinstance(after, int) or not 0 <= after < 2**62:
        raise _invalid(cursor)
    return after


def decode_pair(cursor: str, filters: Mapping[str, object]) -> tuple[str, str]:
    """The two strings in a cursor.

    Raises:
        HttpError: 400, the cursor is malformed, or belongs to a query with other filters.
    """
    after = _after(cursor, filters)
    if not (isinstance(after, list) and len(after) == 2 and all(isinstance(text, str) for text in after)):
        raise _invalid(cursor)
    return after[0], after[1]


def _after(cursor: str, filters: Mapping[str, object]) -> Any:  # noqa: ANN401  (checked by the callers)
    try:
        content = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
        after, bound = content["after"], content["filters"]
    except (binascii.Error, ValueError, KeyError, TypeError, RecursionError):
        detail = f"cursor {cursor[:80]!r} is malformed: leave it out for the first page"
        raise HttpError(400, "bad-cursor", detail) from None
    if bound != dict(filters):
        detail = "the cursor belongs to a query with other filters: leave it out for the first page"
        raise HttpError(400, "bad-cursor", detail)
    return after


def _invalid(cursor: str) -> HttpError:
    return HttpError(400, "bad-cursor", f"cursor {cursor[:80]!r} holds no position: leave it out for the first page")
