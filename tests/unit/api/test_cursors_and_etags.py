"""Cursors are opaque, bound to their filters, and never a crash; ETags match as RFC 9110 says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.encoding import matches
from api.http_errors import HttpError
from api.pages import ById, decode, encode

FILTERS = {"problem": None, "device": "NVIDIA H200", "outcome": None}


@given(st.integers(0, 2**31 - 1))
def test_a_cursor_names_its_place(after: int) -> None:
    found = decode(ById, encode(after, FILTERS, 2**21), FILTERS)
    assert (found.after, found.store) == (after, 2**21)


def test_a_cursor_of_another_query_is_refused() -> None:
    with pytest.raises(HttpError, match="other filters"):
        decode(ById, encode(5, FILTERS), FILTERS | {"device": "NVIDIA H100"})


@pytest.mark.parametrize("after", [-1, 2**31, 2**62])
def test_a_cursor_behind_no_row_that_a_database_can_hold_is_refused(after: int) -> None:
    with pytest.raises(HttpError, match="malformed") as refusal:
        decode(ById, encode(after, FILTERS), FILTERS)
    assert (refusal.value.status_code, refusal.value.kind) == (400, "bad-cursor")


@given(st.text(max_size=60))
def test_any_text_is_a_cursor_or_a_400(text: str) -> None:
    with pytest.raises(HttpError) as refusal:
        decode(ById, text, FILTERS)
    assert refusal.value.status_code == 400


@pytest.mark.parametrize(
    ("header", "same"),
    [('"a"', True), ('W/"a"', True), ('"b", "a"', True), ("*", True), ('"b"', False), ("a", False), ("", False)],
)
def test_if_none_match_compares_weakly(header: str, same: bool) -> None:
    assert matches(header, '"a"') is same
