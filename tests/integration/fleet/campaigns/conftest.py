"""A fleet whose rounds are all of one size, so that tests can count them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fleet import Fleet
from tuner.evidence.store import Store


@pytest.fixture
def fleet(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    # Batches of one size: these tests count rounds.
    monkeypatch.setattr("tuner.studying.screening.batch_size", lambda tried: 16)
    with Store.open(database_url) as store:
        yield Fleet(store)
