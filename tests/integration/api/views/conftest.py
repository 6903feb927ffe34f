"""A store that was filled from recordings, and the service on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from tests import recorded_store
from tests.recorded_store import Filled
from tuner.evidence.store import Store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path_factory.mktemp('views')}/store.db") as opened:
        yield opened


@pytest.fixture(scope="module")
def filled(store: Store) -> Filled:
    return recorded_store.fill(store)


@pytest.fixture(scope="module")
def http(store: Store, filled: Filled) -> Iterator[TestClient]:
    with TestClient(create_app(store), raise_server_exceptions=False) as client:
        yield client
