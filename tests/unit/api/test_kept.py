"""Kept views are made once per version, and take no more memory than they may."""

from __future__ import annotations

import tracemalloc

from fastapi import Request

from api.encoding import LEAST_BYTES
from api.views.kept import Kept

NONE = {"rows": 0}
LARGE = {"text": "".join(map(chr, range(32, 126))) * (LEAST_BYTES // 50)}


def test_a_view_is_made_once_per_version() -> None:
    kept, made = Kept(), list[int]()
    for version in (1, 1, 2, 2, 1):
        kept.get("view", version, lambda version=version: made.append(version))
    assert made == [1, 2, 1]


def test_the_least_recently_used_are_dropped() -> None:
    kept = Kept(most_bytes=3_500)
    for key in "abcadab":
        kept.get(key, 0, lambda: NONE)
    assert [*kept._held] == ["d", "a", "b"]


def test_encodings_count_that_came_later() -> None:
    kept = Kept()
    view = kept.get("view", 0, lambda: LARGE)
    before = kept._bytes
    view.response(Request({"type": "http", "headers": [(b"accept-encoding", b"gzip")]}))
    kept.get("view", 0, lambda: LARGE)
    assert kept._bytes > before


def test_small_views_take_no_more_than_is_counted() -> None:
    tracemalloc.start()
    kept = Kept(most_bytes=2**20)
    for key in range(2_000):
        kept.get(key, 0, lambda: NONE)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < 2**21
