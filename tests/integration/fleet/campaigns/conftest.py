"""A fleet whose rounds are all of one size, so that tests can count them."""

from __future__ import annotations

import pytest

from tests.fleet import Fleet


@pytest.fixture
def fleet(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    monkeypatch.setattr("tuner.studying.screening.batch_size", lambda tried: 16)
    return fleet
