"""Failures that repeat: each is told at once, and again where it stays."""

from __future__ import annotations

from tuner.errors import StoreError
from tuner.repeats import AGAIN_SECONDS, Repeats


def test_a_failure_is_told_at_once_and_again_once_it_has_stayed_for_a_minute() -> None:
    now = 0.0
    failures = Repeats(lambda: now)
    away, full = StoreError("the database is away"), StoreError("the disk is full")
    assert [failures.is_news(each) for each in (away, away, full, away, full)] == [True, False, True, False, False]
    now = AGAIN_SECONDS
    assert [failures.is_news(each) for each in (away, away)] == [True, False]
    failures.end()
    assert failures.is_news(away)
