"""Cursors: an opaque place in a list, bound to the filters that it was made with."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping

from api.problems import HttpProblem


def encode(after: int, filters: Mapping[str, object]) -> str:
    """A cursor behind item `after`."""
    text = json.dumps({"after": after, "filters": filters}, sort_keys=True, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode(cursor: str, filters: Mapping[str, object]) -> int:
    """The place that a cursor names.

    Raises:
        HttpProblem: 400, it is not one of ours, or belongs to a query with other filters.
    """
    try:
        content = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
        after, bound = content["after"], content["filters"]
    except (binascii.Error, ValueError, KeyError, TypeError):
        raise HttpProblem(400, "bad-cursor", f"cursor {cursor[:80]!r} is none of ours: leave it out to begin") from None
    if not isinstance(after, int) or not 0 <= after < 2**62:
        raise HttpProblem(400, "bad-cursor", f"cursor {cursor[:80]!r} names no place: leave it out to begin")
    if bound != dict(filters):
        raise HttpProblem(400, "bad-cursor", "the cursor belongs to a query with other filters: leave it out to begin")
    return after
