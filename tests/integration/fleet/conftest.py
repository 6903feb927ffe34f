"""A fleet on each kind of database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fleet import Fleet
from tuner.evidence.store import Store


@pytest.fixture
def fleet(database_url: str) -> Iterator[Fleet]:
    with Store.open(database_url) as store:
        yield Fleet(store)
