"""Members of JSON objects, each given once: of two with one name Python's parsers keep the last, silently."""

from __future__ import annotations

from collections import Counter
from typing import Any


def each_once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of these members, as `json.loads(…, object_pairs_hook=each_once)` makes them.

    Raises:
        ValueError: two have one name.
    """
    found = dict(members)
    if len(found) < len(members):
        (name, _), *_ = Counter(name for name, _ in members).most_common(1)
        raise ValueError(f"{name[:80]!r} is given twice in one object")
    return found
