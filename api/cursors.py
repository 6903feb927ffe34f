"""Cursors: an opaque place in a list, bound to the filters that it was made with."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Any

from api.problems import HttpProblem


def encode(after: int | Sequence[str], filters: Mapping[str, object]) -> str:
    """A cursor behind the item that `after` names: by its id, or by the texts that the list is sorted by."""
    place = after if isinstance(after, int) else list(after)
    text = json.dumps({"after": place, "filters": filters}, sort_keys=True, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode(cursor: str, filters: Mapping[str, object]) -> int:
    """The id that a cursor names.

    Raises:
        HttpProblem: 400, it is not one of ours, or belongs to a query with other filters.
    """
    after = _after(cursor, filters)
    if isinstance(after, bool) or not isinstance(after, int) or not 0 <= after < 2**62:
        raise _no_place(cursor)
    return after


def decode_pair(cursor: str, filters: Mapping[str, object]) -> tuple[str, str]:
    """The two texts that a cursor names.

    Raises:
        HttpProblem: 400, it is not one of ours, or belongs to a query with other filters.
    """
    after = _after(cursor, filters)
    if not (isinstance(after, list) and len(after) == 2 and all(isinstance(text, str) for text in after)):
        raise _no_place(cursor)
    return after[0], after[1]


def _after(cursor: str, filters: Mapping[str, object]) -> Any:  # noqa: ANN401  (checked by the callers)
    try:
        content = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
        after, bound = content["after"], content["filters"]
    except (binascii.Error, ValueError, KeyError, TypeError, RecursionError):
        raise HttpProblem(400, "bad-cursor", f"cursor {cursor[:80]!r} is none of ours: leave it out to begin") from None
    if bound != dict(filters):
        raise HttpProblem(400, "bad-cursor", "the cursor belongs to a query with other filters: leave it out to begin")
    return after


def _no_place(cursor: str) -> HttpProblem:
    return HttpProblem(400, "bad-cursor", f"cursor {cursor[:80]!r} names no place: leave it out to begin")
